// SPDX-License-Identifier: Apache-2.0
#include "config/resume.hpp"

#include <array>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "base/error.hpp"
#include "config/listing.hpp"

namespace penstock {
namespace {

enum class Verdict : std::uint8_t { silent, note, refuse };

/// What a change of a key, or of any key of a section, means. The first row that fits counts.
struct Rule {
  std::string_view path;
  Verdict verdict;
  std::string_view consequence;
};

constexpr std::string_view other_shape = "the checkpoint's parameters have other names or shapes";
constexpr std::string_view other_function = "the same weights now compute something else";
constexpr std::string_view other_samples = "from here on the samples are others than those of the run so far";
constexpr std::string_view other_batches = "the samples go on behind those taken so far, in batches of the new size";
constexpr std::string_view other_sums = "sums are formed in another order: results agree to rounding, not to the bit";
constexpr std::string_view other_optimizer = "the optimizer goes on with the new value";

constexpr std::array<Rule, 33> rules{{
    {"model.preset", Verdict::silent, ""},  // the values that it stands for are compared
    {"model.precision", Verdict::note, "the fp32 masters go on, stored on the device in the new precision"},
    {"model.norm_epsilon", Verdict::note, other_function},
    {"model.rope_theta", Verdict::note, other_function},
    {"model", Verdict::refuse, other_shape},
    {"data.validation", Verdict::silent, ""},
    {"data.tokenizer", Verdict::note, "the samples of text are shown with another tokenizer"},
    {"data", Verdict::note, other_samples},
    {"training.steps", Verdict::note, "from here on the learning rate follows the course over the new number of steps"},
    {"training.sequence", Verdict::note, other_samples},
    {"training.global_batch", Verdict::note, other_batches},
    {"training.micro_batch", Verdict::note, other_sums},
    {"training.seed", Verdict::note, other_samples},
    {"training.validate_every", Verdict::silent, ""},
    {"training.validation_batches", Verdict::silent, ""},
    {"training.time_limit", Verdict::silent, ""},
    {"training.watchdog", Verdict::silent, ""},
    {"training.clip_mode", Verdict::silent, ""},
    {"training", Verdict::note, other_optimizer},
    {"parallel.data", Verdict::note, other_sums},
    {"parallel", Verdict::silent, ""},
    {"schedule.slices", Verdict::note, other_sums},
    {"schedule.cutting", Verdict::note, other_sums},
    {"schedule.vocabulary_parallel", Verdict::note, other_sums},
    {"schedule", Verdict::silent, ""},
    {"memory.rollback", Verdict::note, "steps that are taken back agree to rounding, not to the bit"},
    {"memory", Verdict::silent, ""},
    {"device", Verdict::silent, ""},
    {"output", Verdict::silent, ""},
    {"testing", Verdict::silent, ""},
    {"hardware", Verdict::silent, ""},
    {"exposure", Verdict::silent, ""},
    {"plan", Verdict::silent, ""},
}};

bool covers(std::string_view rule, std::string_view path) {
  return path.starts_with(rule) && (path.size() == rule.size() || path[rule.size()] == '.');
}

const Rule& rule_of(std::string_view path) {
  for (const auto& rule : rules) {
    if (covers(rule.path, path)) return rule;
  }
  fail(ExitCode::internal, "no rule says what a change of {} means for a resume", path);
}

std::string sentence(const KeyEntry& before, const KeyEntry& after, const Rule& rule) {
  return fmt::format("{} is {}, and {} in the checkpoint: {}", after.path, after.value.value_or("absent"),
                     before.value.value_or("absent"), rule.consequence);
}

}  // namespace

ResumeFindings resume_compatibility(const Deck& checkpoint, const Deck& now) {
  const auto before = list_keys(resolved(checkpoint));
  const auto after = list_keys(resolved(now));
  ResumeFindings findings;
  for (std::size_t i = 0; i < after.size(); ++i) {
    const Rule& rule = rule_of(after[i].path);
    if (after[i].value == before[i].value || rule.verdict == Verdict::silent) continue;
    auto& list = rule.verdict == Verdict::refuse ? findings.refusals : findings.notes;
    list.push_back(sentence(before[i], after[i], rule));
  }
  return findings;
}

}  // namespace penstock
