"""Simulated steps: the figures of decks, their faults, and the comparison with a run."""
import json
import os
import unittest

from support import ROOT, ApplicationTest

UNIT_DECK = {"model": {"layers": 24}, "training": {"sequence": 64, "global_batch": 8}}
RANK_KEYS = {"peak_device_bytes", "peak_activation_bytes", "peak_activation_units", "compute_seconds",
             "peak_host_bytes"}
STEP_KEYS = {"step_seconds", "bubble_makespan", "bubble_span", "exposed_optimizer_seconds", "utilization", "ranks"}


class Simulate(ApplicationTest):
    def simulate(self, deck, *settings, arguments=("--json",)):
        options = [word for setting in settings for word in ("--set", setting)]
        return self.penstock(["simulate", str(deck), *options, *arguments])

    def figures(self, deck, *settings):
        done = self.simulate(deck, *settings)
        self.assertEqual(done.returncode, 0, done.stdout)
        figures = json.loads(done.stdout)
        self.assertLessEqual(STEP_KEYS, set(figures))
        for rank in figures["ranks"]:
            self.assertEqual(set(rank), RANK_KEYS)
        return figures

    def test_unit_hardware_has_the_closed_forms(self):
        deck = self.deck(UNIT_DECK)
        for settings, bubble, units in (
                (["schedule.kind=slimpipe", "schedule.slices=8", "training.global_batch=4", "parallel.pipeline=8"],
                 7 / 39, 22),
                (["schedule.kind=svpp", "schedule.slices=8", "training.global_batch=4", "parallel.pipeline=8"],
                 7 / 39, 15),
                (["schedule.kind=spipe", "parallel.pipeline=4", "schedule.forward_virtual=2",
                  "schedule.backward_virtual=6"], 3 / 67, 1),
                (["schedule.kind=mobius", "parallel.pipeline=4", "schedule.virtual=2"], 3 / 19, 1)):
            with self.subTest(settings=settings):
                figures = self.figures(deck, *settings)
                self.assertAlmostEqual(figures["bubble_makespan"], bubble, 12)
                self.assertEqual(max(rank["peak_activation_units"] for rank in figures["ranks"]), units)
                self.assertIsNone(figures["utilization"])

    def test_slices_that_differ_by_a_token_exchange_attention(self):
        deck = self.deck(UNIT_DECK)
        step = {}
        for tokens in (640, 643, 648):
            step[tokens] = self.figures(deck, "hardware=input/hardware/h100.yaml", "parallel.pipeline=4",
                                        "schedule.kind=slimpipe", "schedule.slices=8", "schedule.exchange=global",
                                        f"training.sequence={tokens}")["step_seconds"]

        self.assertLess(step[640], step[643])
        self.assertLess(step[643], step[648])

    def test_a_queue_is_foretold_in_the_memory_of_its_latest_places(self):
        deck = ROOT / "input/simulate/svpp_13b_rtx4090.yaml"
        settings = ["parallel.neighbours=replicas", "schedule.split_backward=false"]
        split = self.figures(deck, *settings, "schedule.weight_gradients=split")
        for grain in ("whole", "product"):
            with self.subTest(grain=grain):
                queue = self.figures(deck, *settings, "schedule.weight_gradients=placed", f"schedule.weight_grain={grain}",
                                     "schedule.weight_queue=dynamic")
                self.assertLess(queue["step_seconds"], 0.995 * split["step_seconds"])

    def test_the_decks_of_the_repository_fit_their_machines(self):
        decks = sorted((ROOT / "input/simulate").glob("*.yaml"))
        self.assertTrue(decks)
        for deck in decks:
            with self.subTest(deck=deck.name):
                figures = self.figures(deck)
                self.assertTrue(figures["fits"])
                self.assertGreater(figures["step_seconds"], 0)
                self.assertTrue(0 < figures["utilization"] < 1)
                self.assertTrue(0 <= figures["bubble_span"] <= figures["bubble_makespan"] < 1)

    def test_what_does_not_fit_is_shown_with_what_takes_the_bytes(self):
        deck = ROOT / "input/simulate/zb_h1_7b.yaml"
        done = self.simulate(deck, "hardware.device.memory=16 GiB")
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn('"fits": false', done.stdout)
        self.assertIn("activations", done.stdout)
        self.assertIn("device.memory - device.reserve of ../hardware/h100.yaml is 16.00 GiB", done.stdout)

    def test_a_hardware_file_lies_in_the_working_directory_or_beside_the_deck(self):
        text = (ROOT / "input/hardware/unit.yaml").read_text()
        (self.folder / "mine.yaml").write_text(text.replace("name: unit", "name: mine"))
        beside = self.figures(self.deck(UNIT_DECK), "hardware=mine.yaml")
        from_here = self.figures(self.deck(UNIT_DECK), "hardware=input/hardware/v100.yaml")
        self.assertEqual(beside["hardware"], "mine")
        self.assertIn("V100", from_here["hardware"])

    def test_single_figures_of_the_hardware_can_be_set(self):
        deck = ROOT / "input/simulate/zb_h1_7b.yaml"
        slow = self.figures(deck, "hardware.products.efficiency=0.4")
        self.assertGreater(slow["step_seconds"], 1.5 * self.figures(deck)["step_seconds"])

    def test_bad_combinations_are_refused_with_the_rule(self):
        deck = self.deck(UNIT_DECK)
        for settings, reason in (
                (["schedule.kind=interleaved", "schedule.virtual=8", "parallel.pipeline=4"],
                 "pipeline 4 x virtual 8 = 32 stages, but the model has 24 layers"),
                (["schedule.kind=svpp", "schedule.slices=65"], "65 slices cannot be cut from sequences of 64 tokens"),
                (["schedule.kind=slimpipe", "schedule.slices=4", "schedule.exchange=global",
                  "schedule.cutting=balanced"], "needs slices of equal length"),
                (["schedule.kind=slimpipe", "schedule.slices=6", "parallel.pipeline=4"], "dealt evenly"),
                (["schedule.kind=spipe", "schedule.backward_virtual=7", "parallel.pipeline=4"],
                 "pipeline 4 x backward_virtual 7 = 28 backward stages, but the model has 24 layers"),
                (["schedule.kind=spipe", "parallel.layers_per_stage=[12, 12]", "parallel.pipeline=2"],
                 "cuts forward and backward pass each for itself"),
                (["schedule.exchange=global"], "schedule.exchange: is global, which needs ranks that work in lockstep"),
                (["schedule.vocabulary_parallel=true"], "schedule.vocabulary_parallel: is true, which needs ranks that"),
                (["hardware.node.devices=4"], "the deck names no hardware file"),
                (["hardware=nowhere.yaml"], "nowhere.yaml: the hardware file cannot be opened")):
            with self.subTest(settings=settings):
                done = self.simulate(deck, *settings)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(reason, done.stdout)

    def test_train_names_all_that_is_for_simulation_alone(self):
        run = self.train(1, {"parallel.tensor": 2, "memory.optimizer": "device"})
        self.assertEqual(run.code, 2, run.output)
        for key in ("parallel.tensor", "memory.optimizer"):
            self.assertIn(f"{key}: is ", run.output)
        self.assertEqual(run.output.count("so far it is for simulate and plan alone"), 2)

    def test_what_makes_no_sense_is_refused_with_its_reason_everywhere(self):
        deck = self.deck({"memory": {"offload_activations": 0.5, "recompute": "full"}})
        for command in ("simulate", "check", "train"):
            with self.subTest(command=command):
                refused = self.penstock([command, str(deck)])
                self.assertEqual(refused.returncode, 2, refused.stdout)
                self.assertIn("memory.offload_activations: is 0.5, which needs activations that wait", refused.stdout)
                self.assertNotIn("simulate and plan alone", refused.stdout)

    def test_a_key_without_effect_is_noted_where_it_stands(self):
        deck = self.deck({"output.trace_steps": 2})
        for command in ("simulate", "check"):
            with self.subTest(command=command):
                told = self.penstock([command, str(deck)])
                self.assertEqual(told.returncode, 0, told.stdout)
                self.assertRegex(told.stdout, r"note: .*deck.yaml:\d+:\d+: output.trace_steps: is 2, which has no effect")

    def test_a_run_compares_with_its_simulation(self):
        changes = {"parallel": {"pipeline": 2, "data": 2}, "output.trace": True}
        run = self.train(4, changes)
        self.assert_finished(run)
        simulated = self.folder / "simulated.h5"
        done = self.simulate(self.deck(changes), arguments=("--trace", str(simulated)))
        self.assertEqual(done.returncode, 0, done.stdout)

        compared = self.penstock(["trace", str(run.directory), "--against", str(simulated)])

        self.assertEqual(compared.returncode, 0, compared.stdout)
        self.assertIn("against", compared.stdout)
        self.assertNotIn("action 0:", compared.stdout)

    def test_show_draws_what_no_device_runs(self):
        picture = self.folder / "spipe.svg"
        done = self.penstock(["show", str(ROOT / "input/simulate/spipe_19b_v100.yaml"), "--svg", str(picture)])
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("8 forward and 24 backward stages", done.stdout)
        self.assertIn("V100", done.stdout)
        drawn = picture.read_text()
        self.assertIn("RECV_C", drawn)
        self.assertIn("time [s]", drawn)

    def test_figures_in_a_wrong_unit_are_refused(self):
        run = self.penstock(["simulate", str(ROOT / "input" / "simulate" / "zb_h1_7b.yaml"), "--set",
                             "hardware.products.peak=1e-9"])

        self.assertEqual(run.returncode, 2, run.stdout)
        self.assertIn("look for one in a wrong unit", run.stdout)

    def test_a_trace_replaces_files_alone_and_goes_through_links(self):
        deck = str(ROOT / "input" / "quickstart.yaml")
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        refused = self.penstock(["simulate", deck, "--trace", str(pipe)])
        self.assertEqual(refused.returncode, 74, refused.stdout)
        self.assertTrue(pipe.is_fifo())
        (self.folder / "real.h5").write_text("")
        (self.folder / "link.h5").symlink_to("real.h5")
        written = self.penstock(["simulate", deck, "--trace", str(self.folder / "link.h5")])
        self.assertEqual(written.returncode, 0, written.stdout)
        self.assertTrue((self.folder / "link.h5").is_symlink())
        self.assertGreater((self.folder / "real.h5").stat().st_size, 0)

    def test_a_file_of_forwards_is_no_step(self):
        file = self.folder / "forwards.csv"
        file.write_text("0F0,0F1\n1F0,1F1\n")
        run = self.penstock(["simulate", str(self.deck({"training.global_batch": 2, "parallel.pipeline": 2,
                                                        "schedule.file": str(file)}))])

        self.assertEqual(run.returncode, 2, run.stdout)
        self.assertIn("forwards only", run.stdout)

    def test_every_hardware_file_prices_a_step(self):
        files = sorted((ROOT / "input" / "hardware").glob("*.yaml"))
        self.assertGreater(len(files), 5)
        for file in files:
            with self.subTest(file=file.name):
                figures = self.figures(ROOT / "input" / "quickstart.yaml", f"hardware={file}")
                self.assertGreater(figures["step_seconds"], 0)


if __name__ == "__main__":
    unittest.main()
