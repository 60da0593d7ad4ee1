"""penstock measure: writes a hardware file that simulate takes, with figures that can be of a machine."""
import json
import unittest

import yaml

from support import ROOT, ApplicationTest, long_under_sanitizers


class Measure(ApplicationTest):
    def measure(self, ranks, *arguments):
        file = self.folder / f"measured{ranks}.yaml"
        run = self.penstock(["measure", "--output", str(file), *arguments], ranks)
        self.assertEqual(run.returncode, 0, run.stdout)
        return file, yaml.safe_load(file.read_text())

    def test_figures_are_those_of_a_machine(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                _, figures = self.measure(ranks, "--name", "a test's machine")

                self.assertEqual(figures["name"], "a test's machine")
                self.assertEqual(figures["node"]["devices"], ranks)
                # Slower than any processor of this century's second decade, or faster than any: a wrong unit.
                self.assertTrue(1e9 < float(figures["products"]["peak"]) < 1e14, figures)
                self.assertTrue(1e6 < float(figures["node"]["optimizer_rate"]) < 1e11, figures)
                self.assertEqual(max(figures["products"]["efficiency"]), 1)
                for share in ("forward", "backward"):
                    self.assertTrue(0 < figures["attention"][share] <= 1, figures)

    @long_under_sanitizers
    def test_simulate_takes_the_file(self):
        file, figures = self.measure(2, "--precision", "fp32")
        deck = ROOT / "input" / "quickstart.yaml"
        run = self.penstock(["simulate", str(deck), "--json", "--set", f"hardware={file}", "--set",
                             "parallel.pipeline=2"])
        self.assertEqual(run.returncode, 0, run.stdout)
        step = json.loads(run.stdout)

        # 16 sequences of 256 tokens through 6.5 million parameters: 6 FLOPs each, at no more than two ranks' peak.
        self.assertGreater(step["step_seconds"], 6 * 6e6 * 4096 / (2 * float(figures["products"]["peak"])))

    def test_a_file_that_cannot_be_written_is_an_error(self):
        run = self.penstock(["measure", "--output", str(self.folder / "missing" / "file.yaml")])

        self.assertEqual(run.returncode, 74)
        self.assertIn("missing", run.stdout)

    @long_under_sanitizers
    def test_a_file_that_stands_in_its_place_is_kept(self):
        mine = self.folder / "mine.yaml"
        mine.write_text("name: mine\n")

        run = self.penstock(["measure", "--output", str(mine)])

        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertIn(f"what was in {mine} is now in {mine}.previous.1\n", run.stdout)
        self.assertEqual((self.folder / "mine.yaml.previous.1").read_text(), "name: mine\n")
        self.assertNotEqual(mine.read_text(), "name: mine\n")


if __name__ == "__main__":
    unittest.main()
