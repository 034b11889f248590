"""Tables of data_parallel.py's result lines, and what they say of the project's targets."""

COLUMNS = {
    "all_reduce": ("bytes", "shm", "shm in place", "tcp", "mpi", "Gloo", "Open MPI", "MPICH",
                   "copy", "Gloo_ratio", "MPI_ratio", "MPI_ratio_of_medians", "MPICH_ratio",
                   "of_copy_rate"),
    "step": ("case", "mode", "steps", "ms_median", "ms_min", "ratio", "efficiency",
             "efficiency_of_minima", "machine_ceiling", "machine_ceiling_of_minima",
             "efficiency_of_processor_time", "all_reduce_ms", "exposed_ms", "hidden_share",
             "hidden_of_possible", "largest_loss_difference"),
    "shard": ("mode", "steps", "ms_median", "ms_min", "ratio", "memory_mb", "peak_mb",
              "largest_loss_difference"),
    "plan": ("mode", "steps", "ms_median", "ms_min", "ratio", "all_reduce_ms", "exposed_ms",
             "exposed_at_best_ms", "hidden_share", "hidden_of_possible", "hidden_of_best",
             "largest_loss_difference"),
    "hooks": ("mode", "steps", "ms_median", "ms_min", "ratio", "all_reduce_ms", "exposed_ms",
              "largest_loss_difference"),
}
TITLES = {
    "all_reduce": "All-reduce of f32 sums, microseconds, minima; ratios are the other's time over "
                  "`shm in place`'s, over two hosts `tcp`'s",
    "step": "Training steps; ratio is the time over the first mode's of the case, efficiency the "
            "time of one rank alone over that of both",
    "shard": "ZeRO beside FSDP; memory of a rank in MB beyond an empty process's (with `shm` what "
             "ranks share counts to each)",
    "plan": "Measured buckets against those by sizes; at best: with a bucket for each gradient and no "
            "latency",
    "hooks": "Communication hooks",
}


def text(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.3g}"
    return str(value)


def print_rows(columns, rows):
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(text(row.get(column, "")) for column in columns) + " |")


def targets(lines):
    """(what, reached, at least or at most, target) for each target that the lines say something of."""
    for line in lines:
        part, link = line["part"], line["link"]
        own = line.get("mode", "").startswith("lockstep")
        if part == "step" and own and link == "host":
            asked = 0.98 if line["case"] == "gpt_f32" else 0.95
            yield f"efficiency, {line['case']}", line["efficiency"], ">=", asked
            exposed = line["exposed_ms"] / line["all_reduce_ms"]
            yield f"exposed share of the all-reduce, {line['case']}", exposed, "<=", 0.10
        elif part == "plan" and link != "host" and line["mode"].endswith("measured"):
            yield f"hidden of what can be, {link}", line["hidden_of_best"], ">=", 0.9
        elif part == "all_reduce" and link == "host":
            size = line["bytes"]
            what = f"all-reduce of {size:,} bytes: "
            if size >= 1 << 20:
                better = min(line["MPI_ratio"], line.get("MPICH_ratio", line["MPI_ratio"]))
                yield (what + "the better MPI's time over ours", better, ">=",
                       2.5 if size == 16 << 20 else 5.0)
            yield what + "Gloo's time over ours", line["Gloo_ratio"], ">=", 8.0
            if size >= 1 << 20:
                yield what + "of the rate of a copy", line["of_copy_rate"], ">=", 0.8


def print_tables(lines):
    """@param lines of any parts and links, in any order."""
    def place(line):
        return line["link"], line.get("ranks_per_host", 1)

    for link, per_host in dict.fromkeys(map(place, lines)):
        for part in COLUMNS:
            rows = [line for line in lines if line["part"] == part and place(line) == (link, per_host)]
            if not rows:
                continue
            where = "one host" if link == "host" else f"two hosts of {per_host} rank(s), {link}"
            print(f"\n{TITLES[part]}: {where}\n")
            print_rows([column for column in COLUMNS[part] if any(column in row for row in rows)],
                       rows)
    rows = [{"target": what, "reached": reached, "asked": f"{relation} {asked:g}",
             "met": "yes" if (reached >= asked if relation == ">=" else reached <= asked) else "no"}
            for what, reached, relation, asked in targets(lines)]
    if rows:
        print("\nTargets\n")
        print_rows(("target", "reached", "asked", "met"), rows)
