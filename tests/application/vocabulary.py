"""A vocabulary that all ranks share: steps, checkpoints, evaluation, generation."""
import unittest

import h5py
import numpy

from support import ApplicationTest, merged, long_under_sanitizers

PLAIN = {"schedule": {"kind": "slimpipe", "slices": 4}, "output": {"checkpoint_every": 3, "keep": 2}}
SHARED = merged(PLAIN, {"schedule.vocabulary_parallel": True})
MODELS = {
    "llama": {},
    "llama, tied, bf16": {"model": {"tie_embeddings": True, "precision": "bf16"}},
    "gpt2, tied": {"model": {"family": "gpt2", "kv_heads": 4, "tie_embeddings": True}},
    "gpt2": {"model": {"family": "gpt2", "kv_heads": 4}},
}


def on(ranks):
    return {"parallel.pipeline": ranks}


def arrays(run):
    found = {}
    with h5py.File(run.checkpoints()[-1]) as file:
        file["parameters"].visititems(
            lambda name, item: found.update({name: numpy.array(item)}) if isinstance(item, h5py.Dataset) else None)
    return found


class Vocabulary(ApplicationTest):
    def assert_near(self, run, expected, tolerance):
        self.assertEqual(len(run.losses()), len(expected.losses()))
        for mine, exact in zip(run.losses(), expected.losses()):
            for a, b in zip(mine, exact):
                self.assertEqual(a == "", b == "")
                if a:
                    self.assertAlmostEqual(float(a), float(b), delta=tolerance * abs(float(b)))

    def assert_finished_as_planned(self, run):
        self.assert_finished(run)
        self.assert_planned(run)

    def test_steps_and_evaluations_are_those_of_a_run_that_shares_nothing(self):
        for name, model in MODELS.items():
            for ranks in (2, 4):
                with self.subTest(model=name, ranks=ranks):
                    plain = self.train(ranks, merged(merged(PLAIN, model), on(ranks)))
                    shared = self.train(ranks, merged(merged(SHARED, model), on(ranks)))
                    self.assert_finished_as_planned(plain)
                    self.assert_finished_as_planned(shared)
                    # Rounding of storage, through two steps, in the norm too.
                    self.assert_near(shared, plain, 2e-2 if "bf16" in name else 1e-4)
                    mine, exact = arrays(shared), arrays(plain)
                    self.assertEqual({key: a.shape for key, a in mine.items()}, {key: a.shape for key, a in exact.items()})

    def test_threads_delays_stages_and_recomputation_change_no_bit(self):
        run = self.train(2, merged(SHARED, on(2)))
        self.assert_finished(run)
        for changes in ({"device.threads": 2, "testing.delays": {"seed": 3, "longest": 0.002}}, {"schedule.virtual": 2},
                        {"memory.recompute": "full", "schedule.weight_gradients": "split"},
                        {"schedule.weight_gradients": "placed", "schedule.weight_grain": "product"},
                        {"schedule.weight_gradients": "placed", "schedule.weight_queue": "dynamic"}):
            with self.subTest(changes=changes):
                other = self.train(2, merged(merged(SHARED, on(2)), changes))
                self.assert_finished_as_planned(other)
                self.assert_same(other, run)

    @long_under_sanitizers
    def test_checkpoints_load_into_any_layout_and_come_from_any(self):
        layouts = {"4 shares": (4, merged(SHARED, on(4))), "2 shares": (2, merged(SHARED, on(2))),
                   "3 shares of 3 slices": (3, merged(SHARED, {**on(3), "schedule.slices": 3})),
                   "2 shares, 2 replicas": (4, merged(SHARED, {"parallel": {"pipeline": 2, "data": 2}})),
                   "1 rank": (1, merged(PLAIN, {"schedule.kind": "1f1b", "schedule.slices": 1}))}
        for start in ("4 shares", "1 rank", "2 shares, 2 replicas"):
            ranks, deck = layouts[start]
            first = self.train(ranks, deck)
            self.assert_finished(first)
            saved = str(first.checkpoints()[-1])
            runs = []
            for name, (more_ranks, more) in layouts.items():
                with self.subTest(start=start, on=name):
                    runs.append(self.train(more_ranks, merged(more, {"training.steps": 5}), ["--resume", saved]))
                    self.assert_finished(runs[-1])
                    self.assertEqual([row["step"] for row in runs[-1].metrics()], ["4", "5"])
                    self.assert_near(runs[-1], runs[0], 1e-4)

    def test_texts_are_those_of_a_run_that_shares_nothing(self):
        sample = {"output": {"sample": {"prompt": "The quick ", "tokens": 12, "temperature": 0}}}
        plain = self.train(2, merged(merged(PLAIN, on(2)), sample))
        shared = self.train(2, merged(merged(SHARED, on(2)), sample))
        self.assert_finished_as_planned(shared)
        self.assertEqual(shared.summary()["sample"]["text"], plain.summary()["sample"]["text"])
        told = self.penstock(["generate", str(shared.checkpoints()[-1]), "--prompt", "The quick ", "--tokens", "12",
                              "--temperature", "0"], 2)
        self.assertEqual(told.returncode, 0, told.stdout)
        self.assertIn(shared.summary()["sample"]["text"], told.stdout)

    def test_a_vocabulary_smaller_than_the_ranks_is_refused(self):
        deck = self.deck(merged(merged(SHARED, on(4)), {"model.vocabulary": 3, "data.tokenizer": "none"}))
        told = self.penstock(["check", str(deck)])
        self.assertEqual(told.returncode, 2, told.stdout)
        self.assertIn("shares a vocabulary of 3 tokens over 4 ranks", told.stdout)

    def test_a_schedule_file_says_what_it_leaves_out(self):
        deck = self.deck(merged(merged(SHARED, on(4)), {"schedule.exchange": "global"}))
        told = self.penstock(["show", str(deck), "--csv", str(self.folder / "shown.csv")])
        self.assertEqual(told.returncode, 0, told.stdout)
        self.assertIn("the notation has no word for schedule.exchange", told.stdout)
        self.assertIn("schedule.vocabulary_parallel is priced within F and B, and not in the file", told.stdout)

    def test_check_says_what_is_shared(self):
        told = self.penstock(["check", str(self.deck(merged(SHARED, on(4))))])
        self.assertEqual(told.returncode, 0, told.stdout)
        self.assertIn("the ranks share embedding, head and loss: 64 of 256 rows", told.stdout)


if __name__ == "__main__":
    unittest.main()
