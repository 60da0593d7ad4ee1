// SPDX-License-Identifier: Apache-2.0
#include "config/checks.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "config/key_needs.hpp"
#include "config/words.hpp"
#include "data/tokenizer.hpp"
#include "schedule/kinds.hpp"

namespace penstock {
namespace {

void check_head_counts(const ModelOptions& model, BrokenRules& broken) {
  const std::int32_t kv_heads = model.kv_heads.value_or(model.heads);
  if (model.family == Family::gpt2 && kv_heads != model.heads) {
    broken.add({"model.kv_heads", "model.heads", "model.family"},
               "{} differs from heads {}; family gpt2 has as many: leave kv_heads out, or use family llama", kv_heads,
               model.heads);
  } else if (model.heads % kv_heads != 0) {
    broken.add({"model.kv_heads", "model.heads"},
               "heads {} is not divisible by kv_heads {}; each head of keys and values serves as many heads of queries",
               model.heads, kv_heads);
  }
}

void check_head_size(const ModelOptions& model, BrokenRules& broken) {
  if (!model.head_size && model.hidden % model.heads != 0) {
    broken.add({"model.hidden", "model.heads"},
               "hidden {} is not divisible by heads {}; choose hidden {} or {}, or give head_size", model.hidden,
               model.heads, std::max(1, model.hidden / model.heads) * model.heads,
               (std::int64_t{model.hidden} / model.heads + 1) * model.heads);
    return;
  }
  const std::int32_t head_size = model.head_size.value_or(model.hidden / model.heads);
  if (model.family == Family::llama && head_size % 2 != 0) {
    broken.add({model.head_size ? "model.head_size" : "model.hidden", "model.heads", "model.family"},
               "the head size {} is odd; rotary positions turn pairs of numbers, so it must be even", head_size);
  }
  const std::int64_t width = std::int64_t{model.heads} * head_size;
  if (width > std::numeric_limits<std::int32_t>::max()) {
    broken.add({"model.head_size", "model.heads"}, "heads {} x head_size {} = {} is beyond {}", model.heads, head_size,
               width, std::numeric_limits<std::int32_t>::max());
  }
}

void check_experts(const ModelOptions& model, BrokenRules& broken) {
  if (model.experts == 0 && model.active_experts > 0) {
    broken.add({"model.active_experts", "model.experts"}, "{} of a model that has none; give experts",
               counted(model.active_experts, "active expert"));
  }
  if (model.experts == 0) return;
  if (model.active_experts < 1 || model.active_experts > model.experts) {
    broken.add({"model.active_experts", "model.experts"}, "{} of {}; choose from 1 to {}",
               counted(model.active_experts, "active expert"), model.experts, model.experts);
  }
  if (model.family == Family::gpt2) {
    broken.add({"model.experts", "model.family"}, "{}, but family gpt2 has none; use family llama",
               counted(model.experts, "expert"));
  }
}

void check_positions(const Deck& deck, BrokenRules& broken) {
  const std::int32_t positions = deck.model.positions.value_or(deck.training.sequence);
  if (deck.model.family == Family::gpt2 && positions < deck.training.sequence) {
    broken.add({"model.positions", "training.sequence"}, "{}, less than sequence {}; raise positions or leave it out",
               counted(positions, "position"), deck.training.sequence);
  }
}

void check_batch(const Deck& deck, BrokenRules& broken) {
  const std::int64_t batch = deck.training.global_batch;
  const std::int64_t at_once = std::int64_t{deck.training.micro_batch} * deck.parallel.data;
  if (batch % at_once == 0) return;
  const std::int64_t below = batch / at_once * at_once;
  const std::string choice = below > 0 ? fmt::format("{} or {}", below, below + at_once) : fmt::format("{}", at_once);
  broken.add({"training.global_batch", "training.micro_batch", "parallel.data"},
             "global_batch {} is not divisible by micro_batch {} x data {} = {}; choose global_batch {}", batch,
             deck.training.micro_batch, deck.parallel.data, at_once, choice);
}

void check_ranks(const ParallelOptions& parallel, BrokenRules& broken) {
  const std::int64_t ranks = std::int64_t{parallel.pipeline} * parallel.data;
  if (ranks > 1'000'000) {
    broken.add({"parallel.pipeline", "parallel.data"}, "pipeline {} x data {} = {} ranks; at most 1000000 can be named",
               parallel.pipeline, parallel.data, ranks);
  }
}

void check_layers_per_stage(const Deck& deck, BrokenRules& broken) {
  const auto& list = *deck.parallel.layers_per_stage;
  const std::int64_t stages = std::int64_t{deck.parallel.pipeline} * deck.schedule.virtual_stages;
  const auto count = static_cast<std::int64_t>(list.size());
  if (!deck.schedule.file && count != stages) {
    broken.add({"parallel.layers_per_stage", "parallel.pipeline", "schedule.virtual"},
               "has {}; pipeline {} x virtual {} = {}: give one for each", counted(count, "entry", "entries"),
               deck.parallel.pipeline, deck.schedule.virtual_stages, counted(stages, "stage"));
  }
  const std::int64_t sum = std::accumulate(list.begin(), list.end(), std::int64_t{0});
  if (sum != deck.model.layers) {
    broken.add({"parallel.layers_per_stage", "model.layers"},
               "{} = {}, but the model has {}; every layer belongs to one stage", fmt::join(list, " + "),
               counted(sum, "layer"), deck.model.layers);
  }
}

/// One of the two cuttings of a schedule whose passes have stages of their own.
void check_pass_stages(const Deck& deck, std::string_view pass, std::int32_t of_rank,
                       const std::optional<std::int32_t>& of_all, BrokenRules& broken) {
  const std::int64_t stages = of_all.value_or(deck.parallel.pipeline * std::int64_t{of_rank});
  if (deck.model.layers >= stages) return;
  const std::string key = fmt::format("schedule.{}_{}", pass, of_all ? "stages" : "virtual");
  const std::string count =
      of_all ? "" : fmt::format("pipeline {} x {}_virtual {} = ", deck.parallel.pipeline, pass, of_rank);
  broken.add({key, "parallel.pipeline", "model.layers"}, "{}{}, but the model has {}; each stage needs at least one",
             count, counted(stages, fmt::format("{} stage", pass)), counted(deck.model.layers, "layer"));
}

/// The rules of stages where the two passes are cut each for itself.
void check_decoupled_stages(const Deck& deck, BrokenRules& broken) {
  const ScheduleOptions& schedule = deck.schedule;
  check_pass_stages(deck, "forward", schedule.forward_virtual, schedule.forward_stages, broken);
  check_pass_stages(deck, "backward", schedule.backward_virtual, schedule.backward_stages, broken);
  if (deck.parallel.layers_per_stage) {
    broken.add({"parallel.layers_per_stage", "schedule.kind"},
               "lists the layers of {}, but {} cuts forward and backward pass each for itself, as evenly as it "
               "can; leave it out",
               counted(std::ssize(*deck.parallel.layers_per_stage), "stage"), deck_name(schedule.kind));
  }
}

void check_stages(const Deck& deck, BrokenRules& broken) {
  if (!deck.schedule.file && entry_of(deck.schedule.kind).limits.two_partitions) {
    check_decoupled_stages(deck, broken);
    return;
  }
  if (deck.parallel.layers_per_stage) {
    check_layers_per_stage(deck, broken);
    return;
  }
  const std::int64_t stages = std::int64_t{deck.parallel.pipeline} * deck.schedule.virtual_stages;
  if (deck.model.layers >= stages) return;
  broken.add({deck.schedule.virtual_stages > 1 ? "schedule.virtual" : "parallel.pipeline", "parallel.pipeline",
              "schedule.virtual", "model.layers"},
             "pipeline {} x virtual {} = {} stages, but the model has {}; each stage needs at least one",
             deck.parallel.pipeline, deck.schedule.virtual_stages, stages, counted(deck.model.layers, "layer"));
}

/// The number of stages of a schedule file is in the file.
void check_recompute_by_stage(const Deck& deck, BrokenRules& broken) {
  if (!deck.memory.recompute_by_stage || deck.schedule.file) return;
  const ScheduleOptions& schedule = deck.schedule;
  const bool is_decoupled = entry_of(schedule.kind).limits.two_partitions;
  const std::int32_t of_rank = is_decoupled ? schedule.backward_virtual : schedule.virtual_stages;
  const std::int64_t product = std::int64_t{deck.parallel.pipeline} * of_rank;
  const bool counts_all = is_decoupled && schedule.backward_stages;
  const std::int64_t stages = counts_all ? *schedule.backward_stages : product;
  const auto entries = static_cast<std::int64_t>(deck.memory.recompute_by_stage->size());
  if (entries == stages) return;
  const std::string_view name = is_decoupled ? "backward_virtual" : "virtual";
  const std::string count = counts_all ? fmt::format("schedule.backward_stages {}", stages)
                                       : fmt::format("pipeline {} x {} {} = {}", deck.parallel.pipeline, name, of_rank,
                                                     counted(stages, "stage"));
  broken.add({"memory.recompute_by_stage", "parallel.pipeline", "schedule.kind"}, "has {}; {}: give one for each",
             counted(entries, "entry", "entries"), count);
}

/// The rules of the schedule's kind; how many micro-batches there are is no part of them.
void check_kind(const Deck& deck, BrokenRules& broken) {
  if (deck.schedule.file) return;
  const auto options = generator_options(deck.schedule, deck.parallel.pipeline, 1);
  for (const KindFault& fault : faults_of(deck.schedule.kind, options)) {
    broken.add({fault.key, "schedule.kind"}, "{}", fault.text);
  }
}

/// Ranks of a lockstep share whole slices of keys.
void check_exchange(const ScheduleOptions& schedule, BrokenRules& broken) {
  if (schedule.exchange == Exchange::none || schedule.cutting == Cutting::even) return;
  broken.add({"schedule.exchange", "schedule.cutting"},
             "is {}, which needs slices of equal length; with it leave out cutting: {}", deck_name(schedule.exchange),
             deck_name(schedule.cutting));
}

void check_shares(const Deck& deck, BrokenRules& broken) {
  const auto& vocabulary = deck.model.vocabulary;
  if (!deck.schedule.vocabulary_parallel || !vocabulary || *vocabulary >= deck.parallel.pipeline) return;
  broken.add({"schedule.vocabulary_parallel", "model.vocabulary", "parallel.pipeline"},
             "shares a vocabulary of {} over {}; each rank needs one token at least", counted(*vocabulary, "token"),
             counted(deck.parallel.pipeline, "rank"));
}

void check_slices(const Deck& deck, BrokenRules& broken) {
  if (deck.schedule.file || deck.schedule.slices <= deck.training.sequence) return;
  broken.add({"schedule.slices", "training.sequence"}, "{} cannot be cut from sequences of {}",
             counted(deck.schedule.slices, "slice"), counted(deck.training.sequence, "token"));
}

void check_learning_rate(const TrainingOptions& training, BrokenRules& broken) {
  const LearningRateOptions& rate = training.optimizer.learning_rate;
  if (rate.minimum > rate.peak) {
    broken.add({"training.learning_rate.minimum", "training.learning_rate.peak"}, "minimum {} is above peak {}",
               rate.minimum, rate.peak);
  }
}

/// AdamW's inverse divides by the decays of the moments, and by what a step's decay leaves of a weight.
void check_rollback(const Deck& deck, BrokenRules& broken) {
  const OptimizerOptions& optimizer = deck.training.optimizer;
  if (optimizer.clip_mode != ClipMode::speculative || deck.memory.rollback != Rollback::inverse) return;
  if (optimizer.betas[0] == 0 || optimizer.betas[1] == 0) {
    broken.add({"training.betas", "memory.rollback"},
               "are {} and {}; rollback inverse divides by both: choose betas above 0, or rollback copy",
               optimizer.betas[0], optimizer.betas[1]);
  }
  const double decay = optimizer.learning_rate.peak * optimizer.weight_decay;
  if (decay < 1) return;
  broken.add({"training.weight_decay", "training.learning_rate.peak", "memory.rollback"},
             "weight_decay {} x peak {} = {}; rollback inverse divides by what such a step leaves of a weight: choose "
             "less than 1, or rollback copy",
             optimizer.weight_decay, optimizer.learning_rate.peak, decay);
}

void check_texts(const Deck& deck, DeckUse use, BrokenRules& broken) {
  if (deck.data.train.empty() && use == DeckUse::run && deck.device.kind != DeviceKind::priced) {
    broken.add({"data.train"}, "must be given: what to train on, at least one text file, folder or token file");
  }
  const auto is_empty = [](const std::string& path) { return path.empty(); };
  if (std::any_of(deck.data.train.begin(), deck.data.train.end(), is_empty)) {
    broken.add({"data.train"}, "names an empty path");
  }
  if (std::any_of(deck.data.validation.begin(), deck.data.validation.end(), is_empty)) {
    broken.add({"data.validation"}, "names an empty path");
  }
  if (deck.schedule.file && deck.schedule.file->empty()) broken.add({"schedule.file"}, "is an empty path");
  if (deck.output.directory.empty()) broken.add({"output.directory"}, "is an empty path");
  if (deck.output.sample.tokens > 0 && deck.output.sample.prompt.empty()) {
    broken.add({"output.sample.prompt", "output.sample.tokens"}, "is empty; the text needs something to start with");
  }
}

void check_tokenizer(const Deck& deck, BrokenRules& broken) {
  const auto& name = deck.data.tokenizer;
  if (!is_tokenizer_name(name)) {
    const auto nearest = config::nearest_word(name, {"bytes", "none"});
    broken.add({"data.tokenizer"},
               "there is no tokenizer {}{}; it takes bytes, none, or the path of an llm.c tokenizer file (*.bin)",
               config::shown(name), nearest.empty() ? "" : " (did you mean " + nearest + "?)");
  } else if (name == "none" && !deck.model.vocabulary) {
    broken.add(
        {"model.vocabulary", "data.tokenizer"},
        "is left out, and tokenizer none does not say how many tokens there are; give that of the tokenizer that "
        "made the token files (50257 for GPT-2's)");
  }
}

void check_validation(const Deck& deck, BrokenRules& broken) {
  if (deck.training.validate_every > 0 && deck.data.validation.empty()) {
    broken.add({"training.validate_every", "data.validation"},
               "every {}, but data.validation is empty; name texts there, or set validate_every: 0",
               counted(deck.training.validate_every, "step"));
  }
}

void check_late_rank(const Deck& deck, BrokenRules& broken) {
  const auto& late = deck.testing.delay_rank;
  if (!late || *late < deck.parallel.pipeline) return;
  broken.add({"testing.delay_rank", "parallel.pipeline"}, "there is no rank {} of {}; choose from 0 to {}", *late,
             deck.parallel.pipeline, deck.parallel.pipeline - 1);
}

/// Which actions a rank has is known once there is a schedule (kill_place).
void check_kill(const Deck& deck, BrokenRules& broken) {
  const KillOptions& kill = deck.testing.kill;
  if (kill.step == 0) {
    if (!kill.action.empty()) {
      broken.add({"testing.kill.action", "testing.kill.step"}, "is {}, but there is no step; give testing.kill.step",
                 kill.action);
    }
    return;
  }
  if (kill.action.empty()) broken.add({"testing.kill.action", "testing.kill.step"}, "must be given beside a step");
  if (deck.device.kind == DeviceKind::priced) {
    broken.add({"testing.kill.step", "device.kind"},
               "{}: a run on the priced device has nothing to resume; leave kill out", kill.step);
  }
  if (kill.step > deck.training.steps) {
    broken.add({"testing.kill.step", "training.steps"}, "{} is behind the last of {}", kill.step,
               counted(deck.training.steps, "step"));
  }
  if (kill.rank >= world_size(deck)) {
    broken.add({"testing.kill.rank", "parallel.pipeline", "parallel.data"},
               "there is no rank {} of {}; choose from 0 to {}", kill.rank, world_size(deck), world_size(deck) - 1);
  }
}

template <class Refuse>
void refuse_memory(const MemoryOptions& memory, const Refuse& refuse) {
  refuse(memory.optimizer == Place::device, "memory.optimizer", deck_name(memory.optimizer), "choose host");
}

}  // namespace

std::vector<BrokenRule> check_deck(const Deck& deck, DeckUse use) {
  BrokenRules broken;
  check_head_counts(deck.model, broken);
  check_head_size(deck.model, broken);
  check_experts(deck.model, broken);
  check_positions(deck, broken);
  check_batch(deck, broken);
  check_ranks(deck.parallel, broken);
  check_stages(deck, broken);
  check_recompute_by_stage(deck, broken);
  check_kind(deck, broken);
  check_exchange(deck.schedule, broken);
  check_shares(deck, broken);
  check_slices(deck, broken);
  check_learning_rate(deck.training, broken);
  check_rollback(deck, broken);
  check_texts(deck, use, broken);
  check_tokenizer(deck, broken);
  check_validation(deck, broken);
  check_late_rank(deck, broken);
  check_kill(deck, broken);
  auto rules = broken.take();
  if (use == DeckUse::search) return rules;
  auto needs = unmet_needs(deck, Unmet::refused);
  rules.insert(rules.end(), std::make_move_iterator(needs.begin()), std::make_move_iterator(needs.end()));
  return rules;
}

void refuse_what_cannot_run(const Deck& deck) {
  std::vector<std::string> reasons;
  const auto refuse = [&](bool asks, std::string_view key, const auto& value, std::string_view instead) {
    if (!asks) return;
    reasons.push_back(fmt::format("{}: is {}; so far it is for simulate and plan alone: {}", key, value, instead));
  };
  const auto& parallel = deck.parallel;
  refuse(parallel.tensor > 1, "parallel.tensor", parallel.tensor, "set 1, and use pipeline or data");
  refuse(parallel.context > 1, "parallel.context", parallel.context, "set 1, and use pipeline or data");
  refuse(parallel.expert > 1, "parallel.expert", parallel.expert, "set 1");
  refuse(parallel.neighbours != Neighbours::pipeline, "parallel.neighbours", deck_name(parallel.neighbours),
         "choose pipeline");
  refuse(deck.model.experts > 0, "model.experts", deck.model.experts,
         "a mixture of experts cannot be trained yet, set 0");
  refuse(deck.schedule.vocabulary_parallel && deck.memory.parameters == Place::host, "schedule.vocabulary_parallel",
         true, "with memory.parameters host set false");
  refuse_memory(deck.memory, refuse);
  refuse(deck.memory.offload_activations > 0 && recomputes_in_full(deck), "memory.offload_activations",
         deck.memory.offload_activations,
         "with recompute: full, as mobius and spipe always have it, R forms what could leave; set 0");
  if (!reasons.empty()) fail(ExitCode::bad_input, "{}", fmt::join(reasons, "\n"));
}

std::vector<BrokenRule> notes_on(const Deck& deck) {
  BrokenRules surprises;
  const LearningRateOptions& rate = deck.training.optimizer.learning_rate;
  if (rate.warmup > deck.training.steps) {
    surprises.add({"training.learning_rate.warmup", "training.steps"},
                  "{}, more than training.steps {}: the run ends before the peak is reached",
                  counted(rate.warmup, "step"), deck.training.steps);
  }
  if (rate.decay_steps.value_or(0) > deck.training.steps) {
    surprises.add({"training.learning_rate.decay_steps", "training.steps"},
                  "{}, more than training.steps {}: the learning rate falls from the first step after the warm-up",
                  counted(*rate.decay_steps, "step"), deck.training.steps);
  }
  auto notes = surprises.take();
  auto idle = unmet_needs(deck, Unmet::noted);
  notes.insert(notes.end(), std::make_move_iterator(idle.begin()), std::make_move_iterator(idle.end()));
  return notes;
}

}  // namespace penstock
