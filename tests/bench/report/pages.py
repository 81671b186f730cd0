"""The report as Markdown and as text: one table, set in two ways."""

COLUMNS = ("", "kIOPS", "spread", "MB/s", "p50 us", "p99 us", "p99.9 us", "server us", "client us",
           "fio us", "CPU us/IO")
RATIOS = ("IOPS ratio", "CPU ratio")


def number(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratio(row, name):
    return f"{row[name]['median']:.2f}" if row[name] else ""


def columns(report):
    return [*COLUMNS, *(RATIOS if report["baseline"] else ()), "others"]


def cells_of(report, row):
    at = {name: figure["median"] for name, figure in row.items() if isinstance(figure, dict)}
    ratios = [ratio(row, "iops_ratio"), ratio(row, "cpu_us_ratio")] if report["baseline"] else []
    return [row["stand"], number(at["iops"] / 1000), f"{row['iops']['spread']:.0%}", number(at["bytes_per_s"] / 1e6),
            *(number(at[name]) for name in ("p50_us", "p99_us", "p999_us", "server_us", "client_us",
                                            "fio_us", "cpu_us")),
            *ratios, f"{at['others_share']:.0%}"]


def aligned(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows]


def piped(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return lines[:1] + ["| --- |" + " ---: |" * (len(rows[0]) - 1)] + lines[1:]


def explain(report):
    about = report["about"]
    lines = [f"{about['date']}, {about['cpus']} CPUs ({about['cpu']}), Linux {about['kernel']}, "
             f"congestion control {about['congestion']}.",
             f"{', '.join(about['versions'].values())}; build type {about['build_type'] or 'unknown'}."]
    if report["rows"]:
        lines += [
            f"Image of {about['size_bytes'] >> 20} MiB, cached; {about['rounds']} rounds of {about['seconds']:g} s, "
            "interleaved; figures are medians.",
            "spread: of the rounds' IOPS, from the least to the largest, divided by the median.",
            f"Ratios are to {report['baseline']}, taken inside of rounds, and their median." if report["baseline"]
            else f"There are no ratios: {about['baseline']} was not measured."]
    if report["scaling"]:
        lines += [f"Scaling: medians of {about['rounds']} rounds, each with {about['scaling_seconds']} s of load "
                  f"and as long without, {about['scaling_idle_seconds']} s where sessions are idle."]
    if set(report["scaling"]) - {"depth"}:
        lines += ["MiB are resident (VmRSS); each: what one more than in the first row adds."]
    lines += ["CPU is per request, of each process. others: the machine's share that other programs took meanwhile."]
    lines += [f"{name}: {note}." for name, note in report["notes"].items() if note]
    lines += [f"Not measured: {name}: {why}." for name, why in report["missing"].items()]
    lines += [f"Failed: {text}." for text in report["failures"]]
    return lines


SCALING = (("kIOPS", "iops", 1e-3), ("server us", "server_us", 1), ("load us", "load_us", 1),
           ("server MiB", "server_rss_bytes", 2**-20), ("load MiB", "load_rss_bytes", 2**-20),
           ("server KiB each", "server_rss_each_bytes", 2**-10), ("load KiB each", "load_rss_each_bytes", 2**-10))
SHARES = (("server CPU idle", "server_idle", ".2%"), ("load CPU idle", "load_idle", ".2%"),
          ("others", "others_share", ".0%"))


def scaling(name, points):
    figures = [figure for figure in SCALING if any(figure[1] in point for point in points)]
    rows = [[name, *(title for title, _, _ in (*figures, *SHARES))]]
    for point in points:
        rows.append([str(round(point["n"])),
                     *(number(point[key] * scale) if key in point else "" for _, key, scale in figures),
                     *(format(point[key], form) for _, key, form in SHARES)])
    return rows


def tables(report):
    """[(heading, rows)]"""
    found = {}
    for row in report["rows"]:
        title = f"{report['titles'][row['job']]} ({row['placement']} placement)"
        found.setdefault(title, [columns(report)]).append(cells_of(report, row))
    for name, points in report["scaling"].items():
        found[f"Scaling: {report['titles'][name]}"] = scaling(name, points)
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
