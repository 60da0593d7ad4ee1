"""Losses and weights are bitwise the same over layouts, schedules, threads, recomputation and delays."""
import unittest

from support import ApplicationTest, merged, long_under_sanitizers

LAYOUTS = {
    "2 ranks, 1f1b": (2, {"parallel.pipeline": 2}),
    "3 ranks, gpipe": (3, {"parallel.pipeline": 3, "schedule.kind": "gpipe"}),
    "4 ranks, 1f1b, 2 threads": (4, {"parallel.pipeline": 4, "device.threads": 2}),
    "2 ranks, interleaved": (2, {"parallel.pipeline": 2, "schedule": {"kind": "interleaved", "virtual": 2}}),
    "1 rank, 2 stages": (1, {"schedule": {"kind": "interleaved", "virtual": 2}}),
    "2 ranks, recompute": (2, {"parallel.pipeline": 2, "memory.recompute": "full"}),
    "1 rank, attention inputs again": (1, {"memory.recompute": "attention"}),
    "2 ranks, zb_h1, attention inputs again": (2, {"parallel.pipeline": 2, "schedule.kind": "zb_h1",
                                                   "memory.recompute": "attention"}),
    "2 ranks, interleaved, feed-forward again": (2, {
        "parallel.pipeline": 2, "schedule": {"kind": "interleaved", "virtual": 2}, "memory.recompute": "selective"}),
    "3 ranks, layer by layer, split, delays": (3, {
        "parallel.pipeline": 3, "schedule.split_backward": True, "memory.recompute": "layers",
        "testing.delays": {"seed": 3, "longest": 0.004}}),
    "4 ranks, a mode for each stage, 2 threads": (4, {
        "parallel.pipeline": 4, "device.threads": 2,
        "memory.recompute_by_stage": ["layers", "full", "none", "attention"]}),
    "2 ranks, layer by layer, parameters on the host": (2, {
        "parallel.pipeline": 2, "memory": {"parameters": "host", "recompute": "layers"}}),
    "2 ranks, split backward": (2, {"parallel.pipeline": 2, "schedule.split_backward": True}),
    "3 ranks, zb_h1": (3, {"parallel.pipeline": 3, "schedule.kind": "zb_h1"}),
    "2 ranks, v_half": (2, {"parallel.pipeline": 2, "schedule": {"kind": "v_half", "virtual": 2}}),
    "2 ranks, dualpipe_v": (2, {"parallel.pipeline": 2, "schedule": {"kind": "dualpipe_v", "virtual": 2}}),
    "2 ranks, hanayo, recompute": (2, {"parallel.pipeline": 2, "schedule": {"kind": "hanayo", "virtual": 2},
                                       "memory.recompute": "full"}),
    "2 ranks, uneven layers": (2, {"parallel": {"pipeline": 2, "layers_per_stage": [1, 4]}}),
    "2 ranks, 1f1b, parameters on the host": (2, {"parallel.pipeline": 2, "memory.parameters": "host"}),
    "2 ranks, interleaved, one stage on the device": (2, {
        "parallel.pipeline": 2, "schedule": {"kind": "interleaved", "virtual": 2},
        "memory": {"parameters": "host", "resident_stages": 1}}),
    "2 ranks, zb_v, one stage on the device": (2, {
        "parallel.pipeline": 2, "schedule": {"kind": "zb_v", "virtual": 2},
        "memory": {"parameters": "host", "resident_stages": 1}}),
    "2 ranks, v_half, one stage on the device, recompute": (2, {
        "parallel.pipeline": 2, "schedule": {"kind": "v_half", "virtual": 2},
        "memory": {"parameters": "host", "resident_stages": 1, "recompute": "full"}}),
    "2 ranks, v_min, one stage on the device, delays": (2, {
        "parallel.pipeline": 2, "schedule": {"kind": "v_min", "virtual": 2},
        "memory": {"parameters": "host", "resident_stages": 1}, "testing.delays": {"seed": 7, "longest": 0.002}}),
    "2 ranks, dualpipe_v, one stage on the device": (2, {
        "parallel.pipeline": 2, "schedule": {"kind": "dualpipe_v", "virtual": 2},
        "memory": {"parameters": "host", "resident_stages": 1}}),
    "2 ranks, mobius": (2, {"parallel.pipeline": 2, "schedule": {"kind": "mobius", "virtual": 2}}),
    "1 rank, spipe": (1, {"schedule": {"kind": "spipe", "forward_virtual": 2, "backward_virtual": 5}}),
    "2 ranks, spipe": (2, {"parallel.pipeline": 2, "schedule": {"kind": "spipe", "backward_virtual": 2}}),
    "4 ranks, spipe, delays": (4, {"parallel.pipeline": 4, "schedule": {"kind": "spipe", "backward_stages": 5},
                                   "testing.delays": {"seed": 5, "longest": 0.004}}),
    "4 ranks, spipe, nodes of 2": (4, {"parallel": {"pipeline": 4, "ranks_per_node": 2},
                                       "schedule": {"kind": "spipe", "backward_stages": 5}}),
    "3 ranks, 1f1b, nodes of 1, delays": (3, {"parallel": {"pipeline": 3, "ranks_per_node": 1},
                                              "memory.parameters": "host",
                                              "testing.delays": {"seed": 6, "longest": 0.004}}),
    "4 ranks, spipe, the loss on a rank without a backward": (4, {"parallel.pipeline": 4, "schedule": {
        "kind": "spipe", "backward_stages": 3}}),
    "1 rank, spipe, one forward stage": (1, {"schedule": {"kind": "spipe", "backward_virtual": 3}}),
    "2 ranks, placed weights": (2, {"parallel.pipeline": 2, "schedule.weight_gradients": "placed"}),
    "3 ranks, placed products, recompute": (3, {"parallel.pipeline": 3, "memory.recompute": "full", "schedule": {
        "weight_gradients": "placed", "weight_grain": "product"}}),
    "2 ranks, interleaved, placed products": (2, {"parallel.pipeline": 2, "schedule": {
        "kind": "interleaved", "virtual": 2, "weight_gradients": "placed", "weight_grain": "product"}}),
    "2 ranks, interleaved, one stage on the device, queue of products": (2, {"parallel.pipeline": 2, "schedule": {
        "kind": "interleaved", "virtual": 2, "weight_gradients": "placed", "weight_grain": "product",
        "weight_queue": "dynamic"}, "memory": {"parameters": "host", "resident_stages": 1}}),
    "3 ranks, queue of weights, delays": (3, {"parallel.pipeline": 3, "testing.delays": {"seed": 5, "longest": 0.004},
                                              "schedule": {"weight_gradients": "placed", "weight_queue": "dynamic"}}),
    "3 ranks, delays": (3, {"parallel.pipeline": 3, "testing.delays": {"seed": 3, "longest": 0.004}}),
}

# Sequences of 22 tokens in slices of 6, 6, 5 and 5; micro-batches of two sequences.
SLICED = {"training.sequence": 22, "training.micro_batch": 2, "schedule": {"kind": "seq1f1b", "slices": 4}}
SLICED_LAYOUTS = {
    "4 ranks, terapipe": (4, {"parallel.pipeline": 4, "schedule.kind": "terapipe"}),
    "3 ranks, seq1f1b, delays": (3, {"parallel.pipeline": 3, "testing.delays": {"seed": 3, "longest": 0.004}}),
    "2 ranks, seq1f1b_interleaved": (2, {"parallel.pipeline": 2, "schedule.kind": "seq1f1b_interleaved",
                                         "schedule.virtual": 2}),
    "2 ranks, svpp, 2 stages each, split": (2, {"parallel.pipeline": 2, "schedule.kind": "svpp",
                                                "schedule.virtual": 2, "schedule.split_backward": True}),
    "4 ranks, svpp, fewest forwards": (4, {"parallel.pipeline": 4, "schedule.kind": "svpp",
                                           "schedule.forwards_first": 4}),
    "2 ranks, slimpipe, 2 stages each": (2, {"parallel.pipeline": 2, "schedule.kind": "slimpipe",
                                             "schedule.virtual": 2}),
    "4 ranks, slimpipe, 2 threads": (4, {"parallel.pipeline": 4, "schedule.kind": "slimpipe", "device.threads": 2}),
    "2 ranks, svpp, recompute": (2, {"parallel.pipeline": 2, "schedule.kind": "svpp", "memory.recompute": "full"}),
    "2 ranks, svpp, split, attention inputs again": (2, {
        "parallel.pipeline": 2, "schedule.kind": "svpp", "schedule.virtual": 2, "schedule.split_backward": True,
        "memory.recompute": "attention"}),
    "3 ranks, seq1f1b, feed-forward again": (3, {"parallel.pipeline": 3, "memory.recompute": "selective"}),
    "2 ranks, slimpipe, layer by layer, 2 threads": (2, {
        "parallel.pipeline": 2, "schedule.kind": "slimpipe", "schedule.virtual": 2, "device.threads": 2,
        "memory.recompute": "layers"}),
    "2 ranks, svpp, a mode for each stage, split": (2, {
        "parallel.pipeline": 2, "schedule.kind": "svpp", "schedule.virtual": 2, "schedule.split_backward": True,
        "memory.recompute_by_stage": ["full", "layers", "selective", "attention"]}),
    "2 ranks, svpp, parameters on the host": (2, {"parallel.pipeline": 2, "schedule.kind": "svpp",
                                                  "memory.parameters": "host"}),
    "2 ranks, svpp, 2 stages each, one on the device, recompute": (2, {
        "parallel.pipeline": 2, "schedule": {"kind": "svpp", "virtual": 2},
        "memory": {"parameters": "host", "resident_stages": 1, "recompute": "full"}}),
    "2 ranks, slimpipe, 2 stages each, one on the device, recompute": (2, {
        "parallel.pipeline": 2, "schedule": {"kind": "slimpipe", "virtual": 2},
        "memory": {"parameters": "host", "resident_stages": 1, "recompute": "full"}}),
    "2 ranks, mobius": (2, {"parallel.pipeline": 2, "schedule": {"kind": "mobius", "virtual": 2}}),
    "2 ranks, spipe": (2, {"parallel.pipeline": 2, "schedule": {"kind": "spipe", "backward_virtual": 2}}),
    "4 ranks, svpp, placed weights": (4, {"parallel.pipeline": 4, "schedule.kind": "svpp",
                                          "schedule.weight_gradients": "placed"}),
    "2 ranks, svpp, 2 stages each, placed products": (2, {"parallel.pipeline": 2, "schedule": {
        "kind": "svpp", "virtual": 2, "weight_gradients": "placed", "weight_grain": "product"}}),
    "2 ranks, svpp, queue of products, delays": (2, {"parallel.pipeline": 2, "schedule": {
        "kind": "svpp", "virtual": 2, "weight_gradients": "placed", "weight_grain": "product",
        "weight_queue": "dynamic"}, "testing.delays": {"seed": 5, "longest": 0.002}}),
    "1 rank, svpp, 5 stages": (1, {"schedule.kind": "svpp", "schedule.virtual": 5}),
    "2 ranks, slimpipe, offload": (2, {"parallel.pipeline": 2, "schedule.kind": "slimpipe",
                                       "memory.offload_activations": 0.7}),
    "2 ranks, slimpipe, offload, attention inputs again": (2, {
        "parallel.pipeline": 2, "schedule.kind": "slimpipe",
        "memory": {"offload_activations": 0.7, "recompute": "attention"}}),
    "3 ranks, seq1f1b, offload, parameters from the host": (3, {"parallel.pipeline": 3, "memory": {
        "offload_activations": 1, "parameters": "host", "resident_stages": 1}}),
}
# Slices of equal work: of 8, 6, 4 and 4 tokens.
BALANCED_LAYOUTS = ["3 ranks, seq1f1b, delays", "2 ranks, svpp, 2 stages each, split", "2 ranks, slimpipe, 2 stages each"]

# Slices of 22 tokens shared by ranks in lockstep: another order of adding for each.
SHARED_LAYOUTS = {
    "2 ranks, pairwise, halves": (2, {"parallel.pipeline": 2, "schedule.exchange": "pairwise",
                                      "schedule.exchange_grain": "half"}),
    "2 ranks of 2 stages, global": (2, {"parallel.pipeline": 2, "schedule.virtual": 2,
                                        "schedule.exchange": "global"}),
    "4 ranks, pairwise": (4, {"parallel.pipeline": 4, "schedule.exchange": "pairwise"}),
    "4 ranks, global": (4, {"parallel.pipeline": 4, "schedule.exchange": "global"}),
    "2 ranks, pairwise, halves, layer by layer": (2, {
        "parallel.pipeline": 2, "schedule.exchange": "pairwise", "schedule.exchange_grain": "half",
        "memory.recompute": "layers"}),
    "4 ranks, global, chunks, split, recompute": (4, {"parallel.pipeline": 4, "schedule.exchange": "global",
                                                      "schedule.exchange_grain": "chunk",
                                                      "schedule.split_backward": True, "memory.recompute": "full"}),
}


class Layouts(ApplicationTest):
    def check(self, model, base=None, layouts=None):
        changes = merged({"model": model, "output.checkpoint_every": 3}, base or {})
        whole = self.train(1, changes)
        self.assert_finished(whole)
        self.assertEqual(len(whole.losses()), 3)
        self.assert_same_in_all(layouts or LAYOUTS, changes, whole)
        return whole

    def check_slices(self, model, tolerance, cutting="even"):
        """Slices give the same bits in every layout, and the losses of whole sequences but for rounding."""
        layouts = SLICED_LAYOUTS if cutting == "even" else {name: SLICED_LAYOUTS[name] for name in BALANCED_LAYOUTS}
        sliced = self.check(model, merged(SLICED, {"schedule.cutting": cutting}), layouts)
        whole = self.train(1, merged({"model": model}, {**SLICED, "schedule": {}}))
        self.assert_finished(whole)
        for a, b in zip(sliced.losses(), whole.losses()):
            for of_slices, of_sequences in zip(a, b):
                if of_sequences:
                    self.assertAlmostEqual(float(of_slices), float(of_sequences),
                                           delta=tolerance * float(of_sequences))

    def assert_near(self, a, b, tolerance):
        """Of all losses, and of what else metrics name."""
        for rows in zip(a.losses(), b.losses()):
            for one, other in zip(*rows):
                if other:
                    self.assertAlmostEqual(float(one), float(other), delta=tolerance * float(other))

    def check_shared_attention(self, model, tolerance):
        """The losses of ranks that share nothing but for rounding; the same bits with delays and more threads."""
        base = merged({"model": model, "output.checkpoint_every": 3}, {**SLICED, "schedule.kind": "slimpipe"})
        alone = self.train(1, base)
        self.assert_finished(alone)
        for name, (ranks, layout) in SHARED_LAYOUTS.items():
            with self.subTest(layout=name):
                run = self.train(ranks, merged(base, layout))
                self.assert_finished(run)
                self.assert_near(run, alone, tolerance)
                self.assert_planned(run)
                again = self.train(ranks, merged(merged(base, layout),
                                                 {"testing.delays": {"seed": 5, "longest": 0.002},
                                                  "device.threads": 2}))
                self.assert_same(again, run)

    @long_under_sanitizers
    def test_shared_attention_of_llama_in_bf16(self):
        self.check_shared_attention({"precision": "bf16"}, 1e-2)

    def test_shared_attention_of_gpt2_in_fp32(self):
        self.check_shared_attention({"family": "gpt2", "kv_heads": 4}, 1e-5)

    @long_under_sanitizers
    def test_llama_in_fp32(self):
        self.check({})

    @long_under_sanitizers
    def test_llama_in_bf16_with_a_tied_head(self):
        self.check({"precision": "bf16", "tie_embeddings": True})

    @long_under_sanitizers
    def test_gpt2_in_bf16(self):
        self.check({"family": "gpt2", "kv_heads": 4, "precision": "bf16"})

    @long_under_sanitizers
    def test_gpt2_in_fp32_with_a_tied_head(self):
        self.check({"family": "gpt2", "kv_heads": 4, "tie_embeddings": True})

    @long_under_sanitizers
    def test_a_tied_head_whose_gradient_is_ready_long_before_the_embeddings(self):
        # Activations come back behind parameters of a stage that is stepped behind the last one's reduction.
        self.check({"layers": 6, "tie_embeddings": True}, merged(SLICED, {"training.clip": 0}), {
            "2 ranks of 3 stages, offload": (2, {
                "parallel.pipeline": 2, "schedule.kind": "seq1f1b_interleaved", "schedule.virtual": 3,
                "training.watchdog": 20, "memory.offload_activations": 0.5})})

    def check_parameters_of_other_nodes(self, fetch, environment):
        """Ends the run by SPipe over four nodes, which may have been refused, and compares it with that of one rank."""
        saved = {"output.checkpoint_every": 3}
        run = self.train(4, merged(saved, {"parallel": {"pipeline": 4, "ranks_per_node": 1}, "memory.fetch": fetch,
                                           "schedule": {"kind": "spipe", "backward_stages": 5}}),
                         environment=environment)
        if run.code == 0:
            self.assert_same(run, self.train(1, saved))
        return run

    @long_under_sanitizers
    def test_parameters_of_other_nodes_by_get(self):
        run = self.check_parameters_of_other_nodes("get", {"OMPI_MCA_btl_vader_single_copy_mechanism": "cma"})
        if run.code == 2 and "memory.fetch: get: this MPI gives" in run.output:
            self.skipTest("this machine does not let a rank read the memory of another")
        self.assert_finished(run)

    @long_under_sanitizers
    def test_parameters_of_other_nodes_over_tcp(self):
        over_tcp = {"OMPI_MCA_btl": "tcp,self"}
        self.assert_finished(self.check_parameters_of_other_nodes("message", over_tcp))
        refused = self.check_parameters_of_other_nodes("get", over_tcp)
        self.assertEqual(refused.code, 2, refused.output)
        self.assertIn("memory.fetch: get: this MPI gives programs of several threads no windows", refused.output)
        self.assertEqual(refused.output.count("use memory.fetch: message"), 1)
        self.assertIn("OMPI_MCA_btl_vader_single_copy_mechanism=cma", refused.output)

    @long_under_sanitizers
    def test_slices_of_llama_in_bf16_with_a_tied_head(self):
        self.check_slices({"precision": "bf16", "tie_embeddings": True}, 1e-2)

    def test_slices_of_equal_work(self):
        self.check_slices({"head_size": 64}, 1e-5, "balanced")

    @long_under_sanitizers
    def test_slices_of_gpt2_in_fp32(self):
        self.check_slices({"family": "gpt2", "kv_heads": 4}, 1e-5)


if __name__ == "__main__":
    unittest.main()
