"""The report as Markdown and as text: one table, set in two ways."""

COLUMNS = ("", "kIOPS", "MB/s", "p50 us", "p99 us", "p99.9 us", "server us", "client us", "fio us",
           "CPU us/IO", "IOPS ratio", "CPU ratio", "spread", "others")


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(row, name):
    return f"{row[name]['median']:.2f}" if row[name] else ""


def cells_of(row):
    at = {name: figure["median"] for name, figure in row.items() if isinstance(figure, dict)}
    own = row["iops_ratio"] or row["iops"]
    return [row["stand"], number(at["iops"] / 1000), number(at["bytes_per_s"] / 1e6),
            *(number(at[name]) for name in ("p50_us", "p99_us", "p999_us", "server_us", "client_us",
                                            "fio_us", "cpu_us")),
            ratio(row, "iops_ratio"), ratio(row, "cpu_us_ratio"), f"{own['spread']:.0%}",
            f"{at['others_share']:.0%}"]


def aligned(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows]


def piped(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return lines[:1] + ["| --- |" + " ---: |" * (len(rows[0]) - 1)] + lines[1:]


def explain(report):
    about = report["about"]
    lines = [
        f"{about['cpus']} CPUs, Linux {about['kernel']}, {about['fio']}, congestion control "
        f"{about['congestion']}; image of {about['size_bytes'] >> 20} MiB, cached; {about['rounds']} rounds "
        f"of {about['seconds']} s, interleaved.",
        "Figures are medians. Ratios are to " + (report["baseline"] or "nothing")
        + ", taken inside of rounds, and their median; spread is from the least ratio to the largest, of the median.",
        "CPU is per request, of each process. others: the machine's share that other programs took meanwhile.",
    ]
    lines += [f"{name}: {note}." for name, note in report["notes"].items() if note]
    lines += [f"Not measured: {name}: {why}." for name, why in report["missing"].items()]
    lines += [f"Failed: {text}." for text in report["failures"]]
    return lines


def tables(report):
    """[(heading, rows)]"""
    found = {}
    for row in report["rows"]:
        title = f"{report['titles'][row['job']]} ({row['placement']} placement)"
        found.setdefault(title, [list(COLUMNS)]).append(cells_of(row))
    for name, points in report["scaling"].items():
        rows = [[name, "kIOPS", "server us", "load us", "server MiB", "load MiB", "KiB each at server",
                 "KiB each at load", "server CPU idle", "load CPU idle", "others"]]
        for point in points:
            rows.append([str(round(point["n"])), number(point["iops"] / 1000), number(point["server_us"]),
                         number(point["load_us"]), number(point["server_bytes"] / 2**20),
                         number(point["load_bytes"] / 2**20), number(point["server_each"] / 1024),
                         number(point["load_each"] / 1024), f"{point['server_idle']:.2%}",
                         f"{point['load_idle']:.2%}", f"{point['others_share']:.0%}"])
        found[f"Scaling: {report['titles'][name]}"] = rows
    return found.items()


def markdown(report, plots):
    lines = ["# Measured", "", *(f"- {line}" for line in explain(report))]
    for heading, rows in tables(report):
        lines += ["", f"## {heading}", "", *piped(rows)]
        lines += [f"\n![{heading}]({name})" for name in plots.get(heading, []) if name.endswith(".svg")]
    return "\n".join(lines) + "\n"


def text(report):
    lines = explain(report)
    for heading, rows in tables(report):
        lines += ["", heading, *(f"  {line}" for line in aligned(rows))]
    return "\n".join(lines) + "\n"
