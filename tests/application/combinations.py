"""Random decks over all keys that touch each other: what `check` accepts runs as planned, with the losses of the simplest form.

Everything is drawn from SOAK_SEED (default 7, which draws nearly every key): COMBINATIONS_ROUNDS models (default 4), and for
each COMBINATIONS_DECKS decks (default 5) that train it in another way. A failing deck is shown as it was given.
"""
import json
import math
import os
import random
import re
import unittest

from support import ROOT, ApplicationTest, merged

SEED = int(os.environ.get("SOAK_SEED", "7"))
ROUNDS = int(os.environ.get("COMBINATIONS_ROUNDS", "4"))
DECKS = int(os.environ.get("COMBINATIONS_DECKS", "5"))
STEPS = 3
FINISHED, BAD_INPUT, DOES_NOT_FIT, DAMAGED_INPUT = 0, 2, 3, 4

# Kinds with the stages that a rank may have; those that cut sequences.
ONE_STAGE = ["1f1b", "zb_h1", "zb_h2", "seq1f1b"]
TWO_STAGES = ["zb_v", "v_half", "v_min", "dualpipe_v"]
SLICING = ["terapipe", "seq1f1b", "seq1f1b_interleaved", "svpp", "slimpipe", "slimpipe", "slimpipe", "mobius", "spipe"]
WHOLE = ["gpipe", "1f1b", "interleaved", "breadth_first", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "dualpipe_v",
         "hanayo", "mobius", "spipe", *SLICING]
RECOMPUTE = ["none", "attention", "selective", "layers", "full"]


def model_of(dice):
    """What is trained: all that the losses may depend on."""
    family = dice.choice(["llama", "gpt2"])
    slices = dice.choice([1, 1, 2, 3, 4, 4, 6])
    replicas = dice.choice([1, 1, 1, 2])
    micro_batch = dice.choice([1, 1, 2])
    deck = {
        "model": {"family": family, "layers": dice.randint(3, 8), "hidden": dice.choice([32, 48, 64]), "heads": 4,
                  "kv_heads": 4 if family == "gpt2" else dice.choice([1, 2, 4]), "ffn": dice.choice([40, 72, 96]),
                  "precision": dice.choice(["fp32", "bf16"]), "tie_embeddings": dice.random() < 0.4,
                  "vocabulary": dice.choice([256, 257, 301])},
        "training": {"steps": STEPS, "sequence": dice.randint(16, 41), "micro_batch": micro_batch,
                     "global_batch": micro_batch * replicas * dice.randint(1, 6), "validate_every": 2,
                     "seed": dice.randint(1, 1000), "clip": dice.choice([0, 0.2, 1, 100]),
                     "learning_rate": {"peak": 0.002}},
        "parallel": {"data": replicas},
        "schedule": {"slices": slices},
        "output": {"sample": {"prompt": "The ", "tokens": dice.choice([0, 3]), "temperature": 0}},
    }
    if slices > 1:
        deck["schedule"]["cutting"] = dice.choice(["even", "even", "balanced"])
    if dice.random() < 0.3:
        deck["training"]["non_finite"] = "skip"
        deck["testing"] = {"non_finite_steps": [dice.randint(1, STEPS)]}
    return deck


def simplest(model):
    """The deck that trains `model` with as little as possible: a rank for each replica."""
    return merged(model, {"schedule.kind": "terapipe" if model["schedule"]["slices"] > 1 else "gpipe",
                          "output.checkpoint_every": 1, "output.keep": STEPS})


def stages_of(dice, kind, ranks, layers):
    """Stages of a rank that the kind takes, mostly."""
    most = max(1, layers // ranks)
    if kind in ONE_STAGE:
        return 1
    if kind in TWO_STAGES:
        return 2
    return 2 * dice.randint(1, max(1, most // 2)) if kind == "hanayo" else dice.randint(1, min(4, most))


def cut_into(dice, total, parts):
    """`total` layers in `parts` stages of at least one."""
    borders = sorted(dice.sample(range(1, total), parts - 1))
    return [end - begin for begin, end in zip([0, *borders], [*borders, total])]


def spipe_of(dice, ranks, layers):
    schedule = {"kind": "spipe"}
    for way in ("forward", "backward"):
        if dice.random() < 0.5:
            schedule[f"{way}_stages"] = dice.randint(1, layers)
        else:
            schedule[f"{way}_virtual"] = dice.randint(1, max(1, layers // ranks))
    if dice.random() < 0.3:
        schedule["checkpoint_messages"] = "synchronous"
    return schedule


def weights_of(dice):
    kind = dice.choice(["whole", "whole", "split", "placed", "placed"])
    schedule = {"weight_gradients": kind}
    if kind == "placed":
        schedule["weight_grain"] = dice.choice(["whole", "product"])
        schedule["weight_queue"] = dice.choice(["static", "dynamic"])
    return schedule


def lockstep_of(dice, is_even):
    schedule = {}
    if dice.random() < 0.5:
        schedule["vocabulary_parallel"] = True
    if dice.random() < (0.5 if is_even else 0.1):
        schedule["exchange"] = dice.choice(["pairwise", "global"])
        if dice.random() < 0.6:
            schedule["exchange_grain"] = dice.choice(["chunk", "half"])
    return schedule


def kind_of(dice, slices, ranks, layers):
    """One that mostly takes so many slices, and has so many stages."""
    kinds = SLICING if slices > 1 else WHOLE
    if dice.random() < 0.95:
        kinds = [kind for kind in kinds if kind != "slimpipe" or slices % ranks == 0]
        kinds = [kind for kind in kinds if 2 * ranks <= layers or kind not in (*TWO_STAGES, "hanayo")]
    return dice.choice(kinds)


def schedule_of(dice, model, ranks):
    layers, slices = model["model"]["layers"], model["schedule"]["slices"]
    kind = kind_of(dice, slices, ranks, layers)
    if kind == "spipe":
        schedule = spipe_of(dice, ranks, layers)
    else:
        schedule = {"kind": kind, "virtual": stages_of(dice, kind, ranks, layers)}
    if dice.random() < (0.1 if kind in ("mobius", "spipe") else 0.6):
        schedule.update(weights_of(dice))
    if kind == "slimpipe":
        schedule.update(lockstep_of(dice, model["schedule"].get("cutting") != "balanced"))
    if kind == "svpp" and dice.random() < 0.4:
        schedule["forwards_first"] = schedule["virtual"] * slices + dice.randint(-1, ranks - 1)
    if kind in ("mobius", "spipe"):
        schedule["early_recompute"] = dice.random() < 0.3
    return schedule


def stage_count(deck, way):
    """Stages of the pass; 0 where nobody says."""
    schedule = deck["schedule"]
    if schedule["kind"] != "spipe":
        return deck["parallel"]["pipeline"] * schedule["virtual"]
    return schedule.get(f"{way}_stages", deck["parallel"]["pipeline"] * schedule.get(f"{way}_virtual", 1))


def memory_of(dice, deck):
    memory = {}
    always_recomputes = deck["schedule"]["kind"] in ("mobius", "spipe")
    if not always_recomputes or dice.random() < 0.05:
        if dice.random() < 0.3:
            memory["recompute_by_stage"] = [dice.choice(RECOMPUTE) for _ in range(stage_count(deck, "backward"))]
        elif dice.random() < 0.6:
            memory["recompute"] = dice.choice(RECOMPUTE)
    keeps_nothing = always_recomputes or memory.get("recompute") == "full"
    if dice.random() < (0.03 if keeps_nothing else 0.35):
        memory["offload_activations"] = dice.choice([0.1, 0.5, 0.7, 1])
    if dice.random() < (0.03 if deck["schedule"].get("vocabulary_parallel") else 0.3):
        memory["parameters"] = "host"
        memory["fetch"] = dice.choice(["message", "message", "get"])
    if dice.random() < 0.4:
        memory["resident_stages"] = dice.randint(1, 4)
    return memory


def layout_of(dice, model):
    """Another way to train `model`: a deck of all its keys. Most can run; some should be refused."""
    replicas = model["parallel"]["data"]
    if dice.random() < 0.2 and model["training"]["global_batch"] % (2 * model["training"]["micro_batch"]) == 0:
        replicas = 3 - replicas
    ranks = dice.randint(1, min(4 // replicas, model["model"]["layers"]))
    deck = merged(model, {"parallel": {"pipeline": ranks, "data": replicas}, "device.threads": dice.choice([1, 1, 2])})
    deck = merged(deck, {"schedule": schedule_of(dice, model, ranks)})
    stages = stage_count(deck, "forward")
    is_spipe = deck["schedule"]["kind"] == "spipe"
    if dice.random() < (0.05 if is_spipe else 0.3) and stages <= model["model"]["layers"]:
        deck["parallel"]["layers_per_stage"] = cut_into(dice, model["model"]["layers"], stages)
    deck["memory"] = memory_of(dice, deck)
    if dice.random() < 0.3:
        deck["parallel"]["ranks_per_node"] = dice.randint(1, 2)
    if dice.random() < 0.4:
        deck["training"]["clip_mode"] = "speculative"
        deck["memory"]["rollback"] = dice.choice(["copy", "copy", "inverse"])
    if dice.random() < 0.3:
        deck = merged(deck, {"testing.delays": {"seed": dice.randint(1, 99), "longest": 0.002}})
    deck["output"]["trace"] = dice.random() < 0.2
    if dice.random() < 0.2:
        deck["hardware"] = str(ROOT / "input/hardware" / dice.choice(["h100.yaml", "rtx4090.yaml"]))
    return deck


def is_exact(deck, replicas):
    """Whether its bits are those of the simplest form with so many replicas: unless exchange, a shared vocabulary or other
    replicas add in another order, or steps are taken back by arithmetic."""
    schedule = deck["schedule"]
    return (schedule.get("exchange", "none") == "none" and not schedule.get("vocabulary_parallel")
            and deck["memory"].get("rollback") != "inverse" and deck["parallel"]["data"] == replicas)


def world(deck):
    return deck["parallel"].get("pipeline", 1) * deck["parallel"]["data"]


def device_bytes(plan):
    return [rank["planned_device_bytes"] for rank in plan["ranks"]]


def bare(csv):
    """The computations of a schedule file alone."""
    rows = [[cell for cell in row.split(",") if re.fullmatch(r"\d+[FBIWR]\d[\d./]*", cell)] for row in csv.splitlines()]
    return "\n".join(",".join(row) for row in rows) + "\n"


def from_file(deck, file):
    """The deck with its schedule from a CSV file: what the file says leaves the deck, and so does what `show` knows nothing of:
    which memory is left for weight gradients that wait."""
    changed = merged(deck, {"schedule.file": str(file)})
    changed["memory"] = {key: value for key, value in changed["memory"].items() if key not in ("device", "host")}
    changed["schedule"] = {key: value for key, value in changed["schedule"].items() if key in ("file", "cutting")}
    return changed


class Combinations(ApplicationTest):
    def setUp(self):
        super().setUp()
        self.refused = 0

    def test_what_is_accepted_runs_as_planned_with_the_losses_of_the_simplest_form(self):
        for i in range(ROUNDS):
            model = model_of(random.Random(f"{SEED} {i}"))
            expected = self.train_simplest(model)
            with self.subTest(seed=SEED, round=i, deck=json.dumps(simplest(model))):
                self.assert_near_whole_sequences(model, expected)
            for j in range(DECKS):
                dice = random.Random(f"{SEED} {i} {j}")
                deck = self.tightened(dice, layout_of(dice, model))
                with self.subTest(seed=SEED, round=i, number=j, deck=json.dumps(deck)):
                    self.check(dice, deck, expected)
        self.assertLess(self.refused, ROUNDS * DECKS // 2, "most decks were refused: draw others")

    def plan(self, deck):
        """What `check` says: its exit code and output, and the plan of what is at least valid."""
        told = self.penstock(["check", str(self.deck(deck, "checked.yaml")), "--json"])
        return told, json.loads(told.stdout[:told.stdout.rindex("\n}") + 2]) if told.stdout.startswith("{") else None

    def tightened(self, dice, deck):
        """The deck, now and then with about as much memory as it takes: all of it, a little less or more."""
        if dice.random() < 0.6:
            return deck
        share = dice.choice([0.5, 0.8, 0.95, 1, 1, 1, 1.1])
        told, plan = self.plan(deck)
        if told.returncode != FINISHED:
            return deck
        if dice.random() < 0.3:
            return merged(deck, {"memory.host": int(share * plan["node_host_bytes"])})
        return merged(deck, {"memory.device": int(share * max(device_bytes(plan)))})

    def check(self, dice, deck, expected):
        told, plan = self.plan(deck)
        resumed = STEPS - 1 if dice.random() < 0.3 else 0
        arguments = ["--resume", str(expected.checkpoints()[resumed - 1])] if resumed else []
        with_file = dice.random() < 0.4
        run = self.train_once(deck, arguments)
        if "memory.fetch: get: this MPI gives" in run.output:
            self.assertEqual(run.code, BAD_INPUT)
            return
        self.assertEqual(run.code, told.returncode, f"check: {told.stdout}\ntrain: {run.output}")
        self.check_simulation(deck, told.returncode)
        if told.returncode != FINISHED:
            self.refused += 1
            self.assert_refusal(told)
            return
        self.assert_as_planned(run, device_bytes(plan), deck)
        self.assert_losses(run, expected, resumed, deck)
        if dice.random() < 0.2:
            self.check_priced(deck)
        if with_file:
            self.check_file(dice, deck, expected)

    def train_simplest(self, model):
        run = self.train(model["parallel"]["data"], simplest(model))
        self.assert_finished(run)
        run.replicas = model["parallel"]["data"]
        return run

    def train_once(self, deck, arguments=(), ranks=None):
        """With one checkpoint, at the end; a run that hangs ends soon."""
        return self.train(ranks or world(deck), merged(deck, {"training.watchdog": 20, "output.checkpoint_every": STEPS}),
                          arguments, timeout=90)

    def assert_refusal(self, told):
        self.assertIn(told.returncode, (BAD_INPUT, DOES_NOT_FIT), told.stdout)
        self.assertTrue(re.search(r"error: .{20,}|checked.yaml:\d+", told.stdout), told.stdout)

    def check_simulation(self, deck, of_check):
        """What runs can be simulated."""
        told = self.penstock(["simulate", str(self.deck(deck, "simulated.yaml")), "--json"])
        self.assertIn(told.returncode, (FINISHED,) if of_check == FINISHED else (FINISHED, BAD_INPUT, DOES_NOT_FIT),
                      told.stdout)

    def check_priced(self, deck):
        """The same schedule of one replica, where every action only waits."""
        priced = merged(deck, {"device": {"kind": "priced", "time_scale": 1e-4}})
        told = self.penstock(["check", str(self.deck(priced, "priced.yaml"))])
        run = self.train_once(priced, ranks=deck["parallel"]["pipeline"])
        self.assertEqual(run.code, told.returncode, f"priced: {json.dumps(priced)}\n{told.stdout}\n{run.output}")
        self.assertEqual(run.code, FINISHED, run.output)

    def assert_as_planned(self, run, planned, deck):
        """As `check` planned it; a queue of weight gradients may take less."""
        ranks = run.summary()["ranks"]
        self.assertEqual([rank["planned_device_bytes"] for rank in ranks], planned)
        if deck["schedule"].get("weight_queue") != "dynamic":
            return self.assert_planned(run)
        for rank, most in zip(ranks, planned):
            self.assertLessEqual(rank["peak_device_bytes"], most)

    def assert_losses(self, run, expected, resumed, deck):
        if not is_exact(deck, expected.replicas):
            self.assert_near(run.losses(), expected.losses()[resumed:], deck["model"]["precision"])
            return
        self.assert_same(run, expected, resumed)
        self.assertEqual(run.summary().get("sample"), expected.summary().get("sample"))

    def assert_near(self, found, expected, precision):
        """The first loss to 1e-6 and its norm to 1e-5 in fp32. AdamW makes as large a step of a rounding as of a gradient where
        that is nearly nothing: later losses are only near, and later norms say nothing."""
        self.assertEqual(len(found), len(expected))
        for step, rows in enumerate(zip(found, expected)):
            for name, mine, exact in zip(("loss", "norm", "validation"), *rows):
                self.assertEqual(mine == "", exact == "")
                if mine == exact or step and name == "norm":
                    continue
                first = 1e-5 if name == "norm" else 1e-6
                tolerance = 3e-2 if precision == "bf16" else 1e-3 if step else first
                self.assertAlmostEqual(float(mine), float(exact), delta=tolerance * abs(float(exact)),
                                       msg=f"{name} of row {step}")

    def assert_near_whole_sequences(self, model, expected):
        if model["schedule"]["slices"] == 1:
            return
        whole = self.train_simplest(merged(model, {"schedule": {"slices": 1, "cutting": "even"}}))
        self.assert_near(expected.losses(), whole.losses(), model["model"]["precision"])

    def check_file(self, dice, deck, expected):
        """The schedule written and read back. What no file says, exchange and a shared vocabulary, it is without."""
        file = self.folder / "schedule.csv"
        shown = self.penstock(["show", str(self.deck(deck, "shown.yaml")), "--csv", str(file)])
        self.assertEqual(shown.returncode, FINISHED, shown.stdout)
        for key in ("exchange", "vocabulary_parallel"):
            is_asked = deck["schedule"].get(key, "none") not in ("none", False)
            self.assertEqual(f"schedule.{key}" in shown.stdout, is_asked, shown.stdout)
        again = from_file(deck, file)
        is_bare = dice.random() < 0.4 and deck["schedule"]["kind"] != "spipe"
        if is_bare:
            file.write_text(bare(file.read_text()))
        told, plan = self.plan(again)
        run = self.train_once(again)
        where = f"from its file: {json.dumps(again)}\n{file.read_text()}\n{told.stdout}\n{run.output}"
        self.assertEqual(run.code, told.returncode, where)
        if is_bare and run.code == BAD_INPUT:  # passes of the deck may not suit it
            return
        self.assertEqual(run.code, FINISHED, where)
        self.assert_as_planned(run, device_bytes(plan), again)
        self.assert_losses(run, expected, 0, again)


if __name__ == "__main__":
    unittest.main()
