// SPDX-License-Identifier: Apache-2.0
#include "config/key_needs.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/error.hpp"
#include "config/listing.hpp"
#include "schedule/kinds.hpp"

namespace penstock {
namespace {

struct KeyNeed {
  std::string_view key;
  Unmet unmet;
  std::string_view need;    ///< "schedule.kind: spipe", behind "needs" or "has no effect without"
  std::string_view beside;  ///< the key that most likely makes it unmet: a fault stands there if --set gave it
  bool (*is_met)(const Deck&);
};

const KindLimits& limits_of(const Deck& deck) {
  return entry_of(deck.schedule.kind).limits;
}

bool has_kind(const Deck& deck, ScheduleKind kind) {
  return !deck.schedule.file && deck.schedule.kind == kind;
}

bool has_no_file(const Deck& deck) {
  return !deck.schedule.file;
}

/// Of a kind whose parameters come from the host for each stay, whatever the section memory says.
bool always_streams(const Deck& deck) {
  return has_no_file(deck) && limits_of(deck).streams_parameters;
}

/// A schedule file may have fetches of its own.
bool may_stream(const Deck& deck) {
  return deck.schedule.file || always_streams(deck) || deck.memory.parameters == Place::host;
}

bool places_weights(const Deck& deck) {
  return deck.schedule.weight_gradients == WeightGradients::placed;
}

bool has_backwards_to_split(const Deck& deck) {
  return deck.schedule.file || limits_of(deck).has_whole_backwards;
}

bool lists_full_alone(const std::vector<Recompute>& modes) {
  return std::all_of(modes.begin(), modes.end(), [](Recompute mode) { return mode == Recompute::full; });
}

bool has_lockstep(const Deck& deck) {
  return has_kind(deck, ScheduleKind::slimpipe);
}

bool is_priced(const Deck& deck) {
  return deck.device.kind == DeviceKind::priced;
}

bool validates(const Deck& deck) {
  return deck.training.validate_every > 0;
}

bool writes_sample(const Deck& deck) {
  return deck.output.sample.tokens > 0;
}

bool takes_steps_back(const Deck& deck) {
  return deck.training.optimizer.clip_mode == ClipMode::speculative;
}

constexpr std::string_view a_kind = "a schedule of schedule.kind: schedule.file takes its place and says this itself";
constexpr std::string_view lockstep = "ranks that work in lockstep, as those of schedule.kind: slimpipe do";
constexpr std::string_view placed = "schedule.weight_gradients: placed";
constexpr std::string_view streaming =
    "parameters that come from the host: memory.parameters: host, or schedule.kind: mobius or spipe";
constexpr std::string_view validation = "training.validate_every above 0";
constexpr std::string_view sample = "output.sample.tokens above 0";

constexpr auto key_needs = std::to_array<KeyNeed>({
    {"model.positions", Unmet::noted, "model.family: gpt2; llama's positions are rotary", "model.family",
     [](const Deck& deck) { return deck.model.family == Family::gpt2; }},
    {"model.rope_theta", Unmet::noted, "model.family: llama; gpt2's positions are learned", "model.family",
     [](const Deck& deck) { return deck.model.family == Family::llama; }},
    {"data.validation", Unmet::noted, validation, "training.validate_every", validates},
    {"training.validation_batches", Unmet::noted, validation, "training.validate_every", validates},
    {"training.learning_rate.minimum", Unmet::noted, "a training.learning_rate.decay other than constant",
     "training.learning_rate.decay",
     [](const Deck& deck) { return deck.training.optimizer.learning_rate.decay != Decay::constant; }},
    {"training.learning_rate.decay_steps", Unmet::refused, "training.learning_rate.decay: wsd",
     "training.learning_rate.decay",
     [](const Deck& deck) { return deck.training.optimizer.learning_rate.decay == Decay::wsd; }},
    {"training.clip_mode", Unmet::noted,
     "a norm that steps wait for: training.clip above 0, or training.non_finite: skip", "training.clip",
     [](const Deck& deck) {
       return deck.training.optimizer.clip > 0 || deck.training.optimizer.non_finite == NonFinite::skip;
     }},
    {"parallel.expert", Unmet::refused, "a mixture of experts: model.experts", "model.experts",
     [](const Deck& deck) { return deck.model.experts > 0; }},
    {"parallel.neighbours", Unmet::noted, "several replicas (parallel.data) of several ranks (parallel.pipeline)",
     "parallel.data", [](const Deck& deck) { return deck.parallel.data > 1 && deck.parallel.pipeline > 1; }},
    {"schedule.virtual", Unmet::noted, a_kind, "schedule.file", has_no_file},
    {"schedule.slices", Unmet::noted, a_kind, "schedule.file", has_no_file},
    {"schedule.forwards_first", Unmet::noted, a_kind, "schedule.file", has_no_file},
    {"schedule.forward_virtual", Unmet::noted, a_kind, "schedule.file", has_no_file},
    {"schedule.backward_virtual", Unmet::noted, a_kind, "schedule.file", has_no_file},
    {"schedule.forward_stages", Unmet::noted, a_kind, "schedule.file", has_no_file},
    {"schedule.backward_stages", Unmet::noted, a_kind, "schedule.file", has_no_file},
    {"schedule.cutting", Unmet::noted, "several slices (schedule.slices)", "schedule.slices",
     [](const Deck& deck) { return deck.schedule.file || deck.schedule.slices > 1; }},
    {"schedule.early_recompute", Unmet::refused, "schedule.kind: mobius or spipe", "schedule.kind", always_streams},
    {"schedule.checkpoint_messages", Unmet::refused, "schedule.kind: spipe", "schedule.kind",
     [](const Deck& deck) { return has_no_file(deck) && limits_of(deck).two_partitions; }},
    {"schedule.split_backward", Unmet::refused, "schedule.weight_gradients: split, which it is another name for",
     "schedule.weight_gradients", [](const Deck& deck) { return !places_weights(deck); }},
    {"schedule.split_backward", Unmet::noted, "a kind whose lists have B: this one has I and W", "schedule.kind",
     has_backwards_to_split},
    {"schedule.weight_gradients", Unmet::noted, "a kind whose lists have B: this one has I and W", "schedule.kind",
     [](const Deck& deck) { return places_weights(deck) || has_backwards_to_split(deck); }},
    {"schedule.weight_grain", Unmet::refused, placed, "schedule.weight_gradients", places_weights},
    {"schedule.weight_queue", Unmet::refused, placed, "schedule.weight_gradients", places_weights},
    {"schedule.exchange", Unmet::refused, lockstep, "schedule.kind", has_lockstep},
    {"schedule.exchange_grain", Unmet::noted, "schedule.exchange: pairwise or global", "schedule.exchange",
     [](const Deck& deck) { return deck.schedule.exchange != Exchange::none; }},
    {"schedule.vocabulary_parallel", Unmet::refused, lockstep, "schedule.kind", has_lockstep},
    {"memory.recompute", Unmet::refused, "a kind other than mobius and spipe, which always recompute in full",
     "schedule.kind",
     [](const Deck& deck) { return !always_streams(deck) || deck.memory.recompute == Recompute::full; }},
    {"memory.recompute_by_stage", Unmet::refused, "a kind other than mobius and spipe, which always recompute in full",
     "schedule.kind",
     [](const Deck& deck) { return !always_streams(deck) || lists_full_alone(*deck.memory.recompute_by_stage); }},
    {"memory.parameters", Unmet::refused,
     "a kind other than mobius and spipe, whose parameters always come from the host", "schedule.kind",
     [](const Deck& deck) { return !always_streams(deck) || deck.memory.parameters == Place::host; }},
    {"memory.fetch", Unmet::noted, streaming, "memory.parameters", may_stream},
    {"memory.resident_stages", Unmet::noted, streaming, "memory.parameters", may_stream},
    {"memory.offload_activations", Unmet::refused,
     "activations that wait for their backward: with memory.recompute: full, as mobius and spipe always have it, those "
     "of a whole sequence are formed right before it",
     "memory.recompute",
     [](const Deck& deck) { return deck.schedule.file || deck.schedule.slices > 1 || !recomputes_in_full(deck); }},
    {"memory.rollback", Unmet::noted, "training.clip_mode: speculative, which alone takes steps back",
     "training.clip_mode", takes_steps_back},
    {"device.threads", Unmet::noted, "device.kind: host", "device.kind",
     [](const Deck& deck) { return !is_priced(deck); }},
    {"device.time_scale", Unmet::noted, "device.kind: priced", "device.kind", is_priced},
    {"output.trace_steps", Unmet::noted, "output.trace: true", "output.trace",
     [](const Deck& deck) { return deck.output.trace; }},
    {"output.sample.prompt", Unmet::noted, sample, "output.sample.tokens", writes_sample},
    {"output.sample.temperature", Unmet::noted, sample, "output.sample.tokens", writes_sample},
    {"testing.delays.seed", Unmet::noted, "testing.delays.longest above 0", "testing.delays.longest",
     [](const Deck& deck) { return deck.testing.delays.longest.value > 0; }},
    {"testing.non_finite_steps", Unmet::noted, "device.kind: host", "device.kind",
     [](const Deck& deck) { return !is_priced(deck); }},
    {"testing.kill.rank", Unmet::noted, "testing.kill.step", "testing.kill.step",
     [](const Deck& deck) { return deck.testing.kill.step > 0; }},
    {"testing.delay_rank", Unmet::refused, "device.kind: priced", "device.kind", is_priced},
    {"testing.delay_rank", Unmet::noted, "testing.rank_delay above 0", "testing.rank_delay",
     [](const Deck& deck) { return deck.testing.rank_delay.value > 0; }},
    {"testing.rank_delay", Unmet::noted, "testing.delay_rank", "testing.delay_rank",
     [](const Deck& deck) { return deck.testing.delay_rank.has_value(); }},
});

std::string sentence(const KeyNeed& need, const std::string& value, bool takes_null) {
  if (need.unmet == Unmet::refused) {
    return fmt::format("is {}, which needs {}; leave it out{}", value, need.need,
                       takes_null ? ", or set it to null" : "");
  }
  return fmt::format("is {}, which has no effect without {}", value, need.need);
}

}  // namespace

bool recomputes_in_full(const Deck& deck) {
  if (always_streams(deck)) return true;
  const auto& by_stage = deck.memory.recompute_by_stage;
  return by_stage ? lists_full_alone(*by_stage) : deck.memory.recompute == Recompute::full;
}

std::vector<BrokenRule> unmet_needs(const Deck& deck, Unmet unmet) {
  const auto asked = list_keys(deck);
  const auto standard = list_keys(Deck{});
  std::vector<BrokenRule> rules;
  for (const KeyNeed& need : key_needs) {
    const auto& value = entry_at(asked, need.key).value;
    const auto& usual = entry_at(standard, need.key).value;
    if (need.unmet != unmet || !value || value == usual || need.is_met(deck)) continue;
    rules.push_back({{std::string{need.key}, std::string{need.beside}}, sentence(need, *value, !usual)});
  }
  return rules;
}

}  // namespace penstock
