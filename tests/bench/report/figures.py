"""What many cells say together: medians, ratios inside of rounds, spread."""

import statistics

FIGURES = ("iops", "bytes_per_s", "p50_us", "p99_us", "p999_us", "server_us", "client_us", "fio_us",
           "cpu_us", "rss_bytes", "others_share")


def spread(values):
    """Between the least and the largest, of the median."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def of(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "spread": spread(values)}


def summarize(cells, baseline):
    """cells: [{round, job, placement, stand, ...figures}] -> rows in the order of their first cells.

    Absolute figures of rounds differ with what else the machine does; so a ratio is taken in a round,
    where both sides were measured within seconds.
    """
    groups = {}
    for cell in cells:
        key = (cell["job"], cell["placement"], cell["stand"])
        groups.setdefault(key, {})[cell["round"]] = cell
    rows = []
    for (job, placement, stand), rounds in groups.items():
        base = groups.get((job, placement, baseline), {})
        row = {"job": job, "placement": placement, "stand": stand, "rounds": len(rounds)}
        row |= {name: of([cell[name] for cell in rounds.values()]) for name in FIGURES}
        shared = [number for number in rounds if number in base]
        for name in ("iops", "cpu_us", "p50_us"):
            pairs = [(rounds[number][name], base[number][name]) for number in shared]
            ratios = [ours / theirs for ours, theirs in pairs if theirs]
            row[f"{name}_ratio"] = of(ratios) if ratios else None
        rows.append(row)
    return rows
