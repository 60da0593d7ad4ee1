// SPDX-License-Identifier: Apache-2.0
//
// Schedules that cut the sequences of a micro-batch into n slices. What goes through a stage at once is a *unit*: one
// slice of one micro-batch. F of a slice needs F of the slice before it (its keys and values), B that of the slice
// after it, so backwards take the slices of a micro-batch from the last to the first. Stage s is on rank s % p; chunk c
// of rank r is stage c p + r. Bubbles are by makespan with any uniform cost, activations are counted in units.
//
// Where units go through the chunks in *groups* (all units of a group through one chunk, then through the next), a
// group holds G = n ceil(p/n) units: the fewest whole micro-batches that fill the p ranks. That is max(p, n) where n
// divides p or n >= p, and never more than p + n - 1. Where G does not divide m n, the order is that of the next
// multiple without the micro-batches that are not there, as in `interleaved`.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/generators.hpp"
#include "schedule/kinds.hpp"
#include "schedule/schedule.hpp"

namespace penstock {

/// TeraPipe (Li et al., ICML 2021): all forwards, then all backwards, breadth-first over the chunks. Idle (p-1)/(v n m
/// + p-1) of the time if v = 1 or m n >= p; keeps v n m units.
Schedule terapipe(const GeneratorOptions& options);

/// Seq1F1B (arXiv 2406.03488): p-1-r + n forwards before the first backward, then one of each in turn; v = 1. Idle
/// (p-1)/(n m + p-1) of the time; rank r keeps min(n m, p-1-r + n) units.
Schedule seq1f1b(const GeneratorOptions& options);

/// Seq1F1B over v chunks: (v-1) G + 2 (p-1-r) + n forwards before the first backward, which is also how many units rank
/// r keeps where m n is a multiple of G: (v p + p + n - 2)/(v p n) of a micro-batch on the first rank if n divides p.
/// (A count of (v-1) p in place of (v-1) G, as the authors' code has it, cannot run with n > p: the last rank has v n
/// forwards before its first backward.) Idle (p-1)/(v n m + p-1) of the time, if v = 1 or m n is a multiple of G.
Schedule seq1f1b_interleaved(const GeneratorOptions& options);

/// MEPipe's SVPP (EuroSys 2025): as seq1f1b_interleaved, with the fewest units in flight that keep every rank busy:
/// rank r starts (v-1) G + n + p-1-r forwards before its first backward, and keeps as many where m n is a multiple of
/// G. On the first rank that is the paper's v max(p, n) + min(p, n) - 1 if v = 1, n divides p, or n >= p; else up to
/// (v-1)(n-1) more, because a group of exactly p units would cut a micro-batch, and its backward could not start before
/// the next group's forwards. Idle (p-1)/(v n m + p-1) of the time, if v = 1 or m n is a multiple of G.
///
/// With `forwards_first` no rank has more than that many units in flight. Of the groups of whole micro-batches that can
/// run within it the one with the shortest step is taken, F lasting 1 unit and B 2: a longer step for less memory. The
/// step never gets longer with more forwards.
/// @throws Error bad_input for forwards_first below v n (the last stage has the first micro-batch's last slice
/// only then) or above the number above, of which more would only keep more.
Schedule svpp(const GeneratorOptions& options);
void add_svpp_faults(const GeneratorOptions& options, std::vector<KindFault>& faults);

/// SlimPipe (SC 2025): groups of p slices through the chunks, backwards in the reverse order within each micro-batch,
/// no flush between micro-batches. Rank r keeps n v + 2 (p-1-r) units, or all if there are fewer; the ranks can then
/// run in lockstep, each its j-th forward in slot r + j and its j-th backward in slot n v - 1 + 2 (p-1) - r + j, as its
/// exchange of attention context needs. Idle (p-1)/(v n m + p-1) of the time.
/// @throws Error bad_input unless n is a multiple of p.
Schedule slimpipe(const GeneratorOptions& options);
void add_slimpipe_faults(const GeneratorOptions& options, std::vector<KindFault>& faults);

}  // namespace penstock
