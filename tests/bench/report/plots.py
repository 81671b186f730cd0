"""Plots of the report, as SVG and PNG, by matplotlib."""

import os

try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    MISSING = None
except ImportError:
    MISSING = "python3-matplotlib is not installed"


def save(figure, folder, name):
    names = [f"{name}.svg", f"{name}.png"]
    figure.tight_layout()
    for one in names:
        figure.savefig(os.path.join(folder, one), dpi=110)
    pyplot.close(figure)
    return names


def bars(axes, rows, title, unit, parts):
    """parts: [(figure's name, label, scale)], stacked if there are several; else with its range."""
    names = [row["stand"] for row in rows]
    left = [0.0] * len(rows)
    for figure, label, scale in parts:
        values = [row[figure]["median"] * scale for row in rows]
        errors = None
        if len(parts) == 1:
            errors = [[value - row[figure]["min"] * scale for value, row in zip(values, rows)],
                      [row[figure]["max"] * scale - value for value, row in zip(values, rows)]]
        axes.barh(names, values, left=left, label=label, xerr=errors,
                  error_kw={"ecolor": "0.4", "capsize": 2})
        left = [a + b for a, b in zip(left, values)]
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(unit)
    axes.invert_yaxis()
    if len(parts) > 1:
        axes.legend(fontsize=8)


def latencies(axes, rows):
    for row in rows:
        axes.plot(["p50", "p99", "p99.9"],
                  [row[name]["median"] for name in ("p50_us", "p99_us", "p999_us")], marker="o",
                  markersize=3, label=row["stand"])
    axes.set_yscale("log")
    axes.set_title("Latency", fontsize=10)
    axes.set_ylabel("us")
    axes.legend(fontsize=7)


def workload(folder, name, heading, rows):
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 3.2 + 0.7 * len(rows)))
    figure.suptitle(heading)
    bars(axes[0][0], rows, "Requests", "kIOPS", [("iops", "", 1e-3)])
    bars(axes[0][1], rows, "Bandwidth", "MB/s", [("bytes_per_s", "", 1e-6)])
    latencies(axes[1][0], rows)
    bars(axes[1][1], rows, "CPU per request", "us", [
        ("server_us", "server", 1), ("client_us", "client", 1), ("fio_us", "fio", 1)])
    return save(figure, folder, name)


def scaling(folder, name, heading, points):
    figure, (cost, memory) = pyplot.subplots(1, 2, figsize=(11, 4))
    figure.suptitle(heading)
    at = [point["n"] for point in points]
    for axes in (cost, memory):
        axes.set_xscale("log")
        axes.set_xlabel(name)
    cost.plot(at, [point["server_us"] for point in points], marker="o", label="server")
    cost.plot(at, [point["load_us"] for point in points], marker="o", label="load")
    cost.set_ylim(bottom=0)
    cost.set_ylabel("CPU us per request")
    cost.legend()
    memory.plot(at, [point["server_bytes"] / 2**20 for point in points], marker="o", label="server")
    memory.plot(at, [point["load_bytes"] / 2**20 for point in points], marker="o", label="load")
    memory.set_ylim(bottom=0)
    memory.set_ylabel("memory, MiB")
    memory.legend()
    return save(figure, folder, f"scaling-{name}")


def draw(folder, report, heading_of):
    """{heading of a table: names of its files}"""
    found = {}
    for job, placement in dict.fromkeys((row["job"], row["placement"]) for row in report["rows"]):
        rows = [row for row in report["rows"] if (row["job"], row["placement"]) == (job, placement)]
        heading = heading_of(job, placement)
        found[heading] = workload(folder, f"{job}-{placement}", heading, rows)
    for name, points in report["scaling"].items():
        heading = f"Scaling: {report['titles'][name]}"
        found[heading] = scaling(folder, name, heading, points)
    return found
