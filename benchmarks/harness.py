"""What bench.py stands on: drivers, finding and building both sides, rounds, statistics."""
import glob
import json
import os
import shutil
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PEER_BUILD = os.path.join(ROOT, "build-peers")  # what is compiled for the peers; ignored by git


def read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


class Driver:
    """A process that answers one JSON line to each that it is asked."""

    verbose = False  # let drivers write to our stderr

    def __init__(self, name, command, environment=None):
        self.name, self.command = name, command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=None if Driver.verbose else subprocess.DEVNULL, text=True, bufsize=1,
                                        env={**os.environ, **(environment or {})})
        self.about = self.ask({"do": "hello"})

    def ask(self, request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self.process.wait()
            raise SystemExit(f"bench: the {self.name} driver ended with status {status} at {json.dumps(request)}. "
                             "Run again with --verbose to see what it wrote.")
        return json.loads(line)

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()


# ---- finding both sides ---------------------------------------------------------------------------------------------

def find_peer_python():
    """A Python that can import torch: $TANDEM_PEER_PYTHON, the project's virtual environment, python3; or None."""
    candidates = [os.environ.get("TANDEM_PEER_PYTHON"), os.path.join(ROOT, "lab", ".venv-peers", "pytorch", "bin", "python"),
                  "python3"]
    for python in candidates:
        if not python or not shutil.which(python):
            continue
        found = subprocess.run([python, "-c", "import torch; print(torch.__path__[0])"], capture_output=True, text=True)
        if found.returncode == 0:
            return python, found.stdout.strip()
    return None, None


def find_program(name, given):
    """The newest build of one of our programs."""
    if given:
        return given
    found = [path for pattern in ("build*/bin", "build*/*/bin", "build*", "build*/*", "build*/benchmarks")
             for path in glob.glob(os.path.join(ROOT, pattern, name)) if os.access(path, os.X_OK)
             and os.path.isfile(path)]
    return max(found, key=os.path.getmtime) if found else None


def build(command, target, sources):
    """Compiles one small program of this folder if it is older than its sources; the reason on failure, else None."""
    if os.path.exists(target) and all(os.path.getmtime(target) >= os.path.getmtime(s) for s in sources):
        return None
    os.makedirs(PEER_BUILD, exist_ok=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["the compiler failed"])[0]


def build_libtorch_peer(torch_path):
    target, source = os.path.join(PEER_BUILD, "peer_libtorch"), os.path.join(HERE, "peer_libtorch.cpp")
    lib = os.path.join(torch_path, "lib")
    command = ["g++", "-std=c++20", "-O2", "-isystem", os.path.join(torch_path, "include"), source, "-o", target,
               "-L" + lib, "-Wl,-rpath," + lib, "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", "-ltorch_cpu",
               "-lc10", "-ltorch"]
    problem = build(command, target, [source, os.path.join(lib, "libtorch_cpu.so")])
    return (None, problem) if problem else (target, None)


# ---- statistics -----------------------------------------------------------------------------------------------------

def interval(values, statistic, rng, resamples=2000):
    """The 95 % bootstrap interval of a statistic of the rounds."""
    n = len(values)
    drawn = sorted(statistic([values[rng.randrange(n)] for _ in range(n)]) for _ in range(resamples))
    return drawn[int(0.025 * resamples)], drawn[int(0.975 * resamples) - 1]


def ratio(rounds, slow, fast, rng):
    """Median time of `slow` over that of `fast`, with its interval. Rounds stay whole: both ran within each."""
    def of(sample):
        return statistics.median(r[slow] for r in sample) / statistics.median(r[fast] for r in sample)
    return of(rounds), interval(rounds, of, rng)


class Bystanders:
    """How much CPU time others took on this machine while something was measured."""

    def __init__(self, drivers):
        self.drivers = drivers
        self.begin = self.reading()

    def reading(self):
        """(busy ticks of all CPUs, idle ticks, ticks of this process, its children and its drivers)"""
        fields = [int(f) for f in (read("/proc/stat") or "cpu 0 0 0 0 0 0 0 0").split("\n")[0].split()[1:9]]
        idle = fields[3] + fields[4]
        own = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
        for driver in self.drivers:
            stat = read(f"/proc/{driver.process.pid}/stat")
            own += sum(int(f) for f in stat.rsplit(")", 1)[1].split()[11:15]) if stat else 0
        return sum(fields) - idle, idle, own

    def share(self):
        busy, idle, own = (b - a for a, b in zip(self.begin, self.reading()))
        return max(0.0, busy - own) / max(1.0, busy + idle)


# ---- rounds ---------------------------------------------------------------------------------------------------------

class Runner:
    """A row of the table: something that can do a block of steps."""

    def __init__(self, side, variant, block, limits, label=None):
        self.side, self.variant, self.block, self.label = side, variant, block, label or variant
        self.warm_steps, self.least_steps, self.most_steps = limits
        self.steps = 1


def measure(runners, options, most_rounds=1000):
    """Rounds of {row number: seconds a step}. Each round runs every row in random order, then in the reverse."""
    for runner in runners:  # warm-up; it also says how many steps make a block of the wanted length
        runner.block(2)
        seconds = statistics.median(runner.block(runner.warm_steps))
        runner.steps = max(runner.least_steps, min(runner.most_steps, int(options.block / max(seconds, 1e-9))))
    rounds = []
    for _ in range(min(options.rounds, most_rounds)):
        order = list(range(len(runners)))
        options.rng.shuffle(order)
        seconds = {i: [] for i in order}
        for i in order + order[::-1]:
            seconds[i] += runners[i].block(runners[i].steps)
        rounds.append({i: statistics.median(s) for i, s in seconds.items()})
    return rounds


def driver_runner(driver, side, variant, request, limits, label=None):
    def block(steps):
        answer = driver.ask({"do": "run", "variant": variant, "steps": steps, **request})
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["seconds"]
    return Runner(side, variant, block, limits, label)


def usable(runners, notes):
    """Those that work here; the others are named in the notes."""
    working = []
    for runner in runners:
        try:
            runner.block(1)
            working.append(runner)
        except RuntimeError as error:
            notes.append(f"{runner.side} {runner.label} does not run here: {error}")
    return working


def summarise(name, runners, rounds, goals, notes, options):
    """Rows with medians and, against the fastest row of the peer, ratios. A goal is a ratio (above it is met) or,
    written as negative, a number of seconds (below it is met)."""
    peers = [i for i, r in enumerate(runners) if r.side != "tandem"]
    medians = [statistics.median(r[i] for r in rounds) for i in range(len(runners))]
    best = min(peers, key=medians.__getitem__) if peers else None
    rows = []
    for i, runner in enumerate(runners):
        low, high = interval([r[i] for r in rounds], statistics.median, options.rng)
        row = {"side": runner.side, "variant": runner.label, "seconds": medians[i], "seconds_interval": [low, high],
               "steps_per_block": runner.steps}
        if runner.label.endswith("A/A"):
            twin = next(j for j, r in enumerate(runners) if r.side == "tandem" and r.variant == runner.variant)
            row["ratio"], row["ratio_interval"] = ratio(rounds, i, twin, options.rng)
            row["against"] = "tandem " + runners[twin].label
        elif best is not None:
            row["ratio"], row["ratio_interval"] = ratio(rounds, best, i, options.rng)
            row["against"] = f"{runners[best].side} {runners[best].label}"
            if i == best:
                row["best_of_peer"] = True
        goal = goals.get(runner.label) if runner.side == "tandem" else None
        if goal:
            row["goal"] = goal
            row["met"] = row.get("ratio", 0) >= goal if goal > 0 else medians[i] < -goal
        rows.append(row)
    return {"case": name, "rounds": len(rounds), "rows": rows, "notes": notes}
