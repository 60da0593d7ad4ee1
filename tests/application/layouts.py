"""Losses and weights are bitwise the same over layouts, schedules, threads, recomputation and delays."""
import unittest

from support import ApplicationTest

LAYOUTS = {
    "2 ranks, 1f1b": (2, {"parallel.pipeline": 2}),
    "3 ranks, gpipe": (3, {"parallel.pipeline": 3, "schedule.kind": "gpipe"}),
    "4 ranks, 1f1b, 2 threads": (4, {"parallel.pipeline": 4, "device.threads": 2}),
    "2 ranks, interleaved": (2, {"parallel.pipeline": 2, "schedule": {"kind": "interleaved", "virtual": 2}}),
    "1 rank, 2 stages": (1, {"schedule": {"kind": "interleaved", "virtual": 2}}),
    "2 ranks, recompute": (2, {"parallel.pipeline": 2, "memory.recompute": "full"}),
    "2 ranks, split backward": (2, {"parallel.pipeline": 2, "schedule.split_backward": True}),
    "3 ranks, zb_h1": (3, {"parallel.pipeline": 3, "schedule.kind": "zb_h1"}),
    "2 ranks, v_half": (2, {"parallel.pipeline": 2, "schedule": {"kind": "v_half", "virtual": 2}}),
    "2 ranks, dualpipe_v": (2, {"parallel.pipeline": 2, "schedule": {"kind": "dualpipe_v", "virtual": 2}}),
    "2 ranks, hanayo, recompute": (2, {"parallel.pipeline": 2, "schedule": {"kind": "hanayo", "virtual": 2},
                                       "memory.recompute": "full"}),
    "2 ranks, uneven layers": (2, {"parallel": {"pipeline": 2, "layers_per_stage": [1, 4]}}),
    "3 ranks, delays": (3, {"parallel.pipeline": 3, "testing.delays": {"seed": 3, "longest": 0.004}}),
}


class Layouts(ApplicationTest):
    def check(self, model):
        changes = {"model": model, "output.checkpoint_every": 3}
        whole = self.train(1, changes)
        self.assert_finished(whole)
        self.assertEqual(len(whole.losses()), 3)
        expected = whole.weights()
        for name, (ranks, layout) in LAYOUTS.items():
            with self.subTest(layout=name):
                run = self.train(ranks, {**changes, **layout})
                self.assert_finished(run)
                self.assertEqual(run.losses(), whole.losses())
                weights = run.weights()
                self.assertEqual(weights.keys(), expected.keys())
                self.assertEqual([k for k in weights if weights[k] != expected[k]], [])

    def test_llama_in_fp32(self):
        self.check({})

    def test_llama_in_bf16_with_a_tied_head(self):
        self.check({"precision": "bf16", "tie_embeddings": True})

    def test_gpt2_in_bf16(self):
        self.check({"family": "gpt2", "kv_heads": 4, "precision": "bf16"})

    def test_gpt2_in_fp32_with_a_tied_head(self):
        self.check({"family": "gpt2", "kv_heads": 4, "tie_embeddings": True})


if __name__ == "__main__":
    unittest.main()
