"""Plots of the report, as SVG and PNG, by matplotlib.

A colour is a stand; a process (server, client, load) is a shade of grey.
"""

import os
import sys

from processes import check_interrupted

try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker
    MISSING = None
except ImportError:
    MISSING = (f"{sys.executable} is without matplotlib; /usr/bin/python3 has it from Debian's "
               "python3-matplotlib")

KINDS = (".svg", ".png")
STANDS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink",
          "tab:olive", "tab:cyan")
SERVER, CLIENT, FIO = "0.25", "0.55", "0.8"
NAMES = "monospace"  # in others rn looks like m


def save(figure, folder, name):
    for kind in KINDS:
        figure.savefig(os.path.join(folder, name + kind), dpi=200)
    pyplot.close(figure)
    return [name + kind for kind in KINDS]


def show_names(axes):
    axes.invert_yaxis()
    for label in axes.get_yticklabels():
        label.set_family(NAMES)


def requests(axes, rows, colours):
    values, least, most = ([row["iops"][name] / 1000 for row in rows] for name in ("median", "min", "max"))
    axes.barh([row["stand"] for row in rows], values, color=colours,
              xerr=[[a - b for a, b in zip(values, least)], [a - b for a, b in zip(most, values)]],
              error_kw={"ecolor": "0.4", "capsize": 2})
    axes.set_title("Requests", fontsize=10)
    axes.set_xlabel("kIOPS; the line: from the least round to the largest")
    show_names(axes)


def cpu(axes, rows):
    left = [0.0] * len(rows)
    for name, label, shade in (("server_us", "server", SERVER), ("client_us", "client", CLIENT),
                               ("fio_us", "fio", FIO)):
        values = [row[name]["median"] for row in rows]
        axes.barh([row["stand"] for row in rows], values, left=left, label=label, color=shade)
        left = [a + b for a, b in zip(left, values)]
    axes.set_title("CPU per request", fontsize=10)
    axes.set_xlabel("us")
    show_names(axes)
    axes.legend(fontsize=8)


def latencies(axes, rows, colours):
    for row, colour in zip(rows, colours):
        axes.plot(["p50", "p99", "p99.9"],
                  [row[name]["median"] for name in ("p50_us", "p99_us", "p999_us")], marker="o",
                  markersize=3, label=row["stand"], color=colour)
    axes.set_yscale("log")
    axes.set_title("Latency", fontsize=10)
    axes.set_ylabel("us")


def workload(folder, name, heading, rows, stands):
    colours = [STANDS[stands.index(row["stand"])] for row in rows]
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 3.2 + 0.7 * len(rows)), layout="constrained")
    figure.suptitle(heading)
    requests(axes[0][0], rows, colours)
    cpu(axes[0][1], rows)
    latencies(axes[1][0], rows, colours)
    axes[1][1].axis("off")
    axes[1][1].legend(*axes[1][0].get_legend_handles_labels(), loc="upper left", prop={"family": NAMES, "size": 8})
    return save(figure, folder, name)


def lines(axes, points, figure, scale, label):
    """Of the server and of the load."""
    at = [point["n"] for point in points]
    for side, shade, marker in (("server", SERVER, "o"), ("load", CLIENT, "s")):
        axes.plot(at, [point[f"{side}_{figure}"] * scale for point in points], marker=marker,
                  color=shade, label=side)
    axes.set_xscale("log")
    axes.set_xticks(at, [str(round(n)) for n in at])
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_ylim(0, axes.get_ylim()[1] * 1.15)
    axes.set_ylabel(label)


def scaling(folder, name, heading, points):
    shown = [("us", 1, "CPU us per request")]
    if "server_rss_bytes" in points[0]:
        shown.append(("rss_bytes", 2**-20, "resident memory, MiB"))
    figure, axes = pyplot.subplots(1, len(shown), figsize=(2 + 5 * len(shown), 4), squeeze=False,
                                   layout="constrained")
    figure.suptitle(heading)
    for one, what in zip(axes[0], shown):
        lines(one, points, *what)
        one.set_xlabel(name)
    axes[0][-1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return save(figure, folder, f"scaling-{name}")


def draw(folder, report, stands):
    """{heading of a table: names of its files}"""
    found = {}
    for job, placement in dict.fromkeys((row["job"], row["placement"]) for row in report["rows"]):
        check_interrupted()
        rows = [row for row in report["rows"] if (row["job"], row["placement"]) == (job, placement)]
        heading = f"{report['titles'][job]} ({placement} placement)"
        found[heading] = workload(folder, f"{job}-{placement}", heading, rows, stands)
    for name, points in report["scaling"].items():
        check_interrupted()
        heading = f"Scaling: {report['titles'][name]}"
        found[heading] = scaling(folder, name, heading, points)
    return found


def names(jobs, placements, scaled):
    """Of all files that draw() could have made for these."""
    stems = [f"{job}-{placement}" for job in jobs for placement in placements]
    return [stem + kind for stem in (*stems, *(f"scaling-{name}" for name in scaled)) for kind in KINDS]
