// SPDX-License-Identifier: Apache-2.0
#include "config/listing.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "config/checks.hpp"
#include "config/deck_texts.hpp"
#include "config/resume.hpp"
#include "config/scalar.hpp"
#include "schedule/kinds.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Gives every key of a deck a random value within its range; drawn from engine bits alone, the same on all machines.
class Randomizer {
 public:
  explicit Randomizer(std::uint32_t seed) : engine_{seed} {}

  template <class T>
  void operator()(std::string_view, T& member, const KeyInfo& info) {
    if constexpr (config::Described<T>) {
      describe(*this, member);
    } else {
      member = draw<T>(info);
    }
  }

 private:
  std::uint64_t bits() { return (std::uint64_t{engine_()} << 32) | engine_(); }
  std::uint64_t below(std::uint64_t bound) { return bits() % bound; }

  template <class T>
  T draw(const KeyInfo& info) {
    if constexpr (config::Optional<T>) {
      if (below(2) == 0) return std::nullopt;
      return draw<typename T::value_type>(info);
    } else if constexpr (config::List<T>) {
      return draw_list<T>(info);
    } else if constexpr (std::is_same_v<T, bool>) {
      return below(2) == 1;
    } else if constexpr (std::is_enum_v<T>) {
      const auto names = enum_names(T{});
      return names[below(names.size())].value;
    } else if constexpr (std::is_same_v<T, std::string>) {
      return draw_text();
    } else {
      return draw_number<T>(info.range);
    }
  }

  template <class T>
  T draw_list(const KeyInfo& info) {
    T list{};
    if constexpr (requires { list.resize(1); }) list.resize(1 + below(3));
    for (auto& item : list) item = draw<typename T::value_type>(info);
    return list;
  }

  /// Characters that need quotes, escapes or more than one byte.
  std::string draw_text() {
    static const std::vector<std::string> pieces{
        "a", "Z", "7", " ", "\"", "'", "\\", "\n",   "\t", "\r", ":", "#",    "-",    "{",    "]",   ",", "*",
        "&", "!", "%", "?", "|",  ">", "~",  "\x7f", "ä",  "水", "😀", "\x1b", "true", "null", "1.5", "/", "."};
    std::string text{"x"};
    if (below(2) == 0) text.clear();
    for (std::uint64_t i = 0, count = 1 + below(6); i < count; ++i) text += pieces[below(pieces.size())];
    return text;
  }

  template <class T>
  T draw_number(const KeyRange& range) {
    if constexpr (std::is_same_v<T, std::uint64_t>) {
      return bits();
    } else if constexpr (std::is_same_v<T, Bytes>) {
      return Bytes{1 + static_cast<std::int64_t>(below(std::uint64_t{1} << (1 + below(52))))};  // exact as a double
    } else if constexpr (std::is_same_v<T, Seconds>) {
      return Seconds{draw_double(range)};
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
      const double high = std::min(range.high, 2147483647.0);
      return static_cast<std::int32_t>(range.low +
                                       static_cast<double>(below(static_cast<std::uint64_t>(high - range.low) + 1)));
    } else {
      return draw_double(range);
    }
  }

  double draw_double(const KeyRange& range) {
    for (;;) {
      const double fraction = static_cast<double>(bits() >> 11) * 0x1p-53;
      const double value = std::ldexp(fraction, static_cast<int>(below(80)) - 40);
      if (range.contains(value)) return value;
    }
  }

  std::mt19937 engine_;
};

/// As kinds have it whose parameters come from the host.
void stream_and_recompute(MemoryOptions& memory) {
  if (memory.parameters) memory.parameters = Place::host;
  if (memory.recompute) memory.recompute = Recompute::full;
  if (memory.recompute_by_stage)
    std::fill(memory.recompute_by_stage->begin(), memory.recompute_by_stage->end(), Recompute::full);
  memory.offload_activations = 0;
}

/// A random deck that breaks no rule between its keys: those that such rules speak of get sound values.
Deck random_deck(std::uint32_t seed) {
  Deck deck;
  Randomizer randomizer{seed};
  describe(randomizer, deck);
  const Deck standard;
  deck.model.heads = 8;
  deck.model.hidden = 256;
  deck.model.kv_heads = deck.model.kv_heads ? std::optional{8} : std::nullopt;
  deck.model.head_size = deck.model.head_size ? std::optional{*deck.model.head_size / 2 * 2 + 2} : std::nullopt;
  deck.model.positions = deck.model.positions ? std::optional{deck.training.sequence} : std::nullopt;
  const bool is_mixture = deck.model.family == Family::llama && deck.model.experts > 0;
  deck.model.experts = is_mixture ? deck.model.experts : 0;
  deck.model.active_experts = is_mixture ? 1 + deck.model.active_experts % deck.model.experts : 0;
  deck.parallel.expert = is_mixture ? deck.parallel.expert : 1;
  deck.data.tokenizer = deck.model.vocabulary ? "gpt2_tokenizer.bin" : "bytes";  // no file is read for a given number
  deck.training.micro_batch = 1;
  deck.training.global_batch = deck.parallel.data;
  deck.parallel.pipeline = 1;
  deck.parallel.layers_per_stage.reset();
  const bool is_svpp = deck.schedule.kind == ScheduleKind::svpp && !deck.schedule.file;
  deck.model.layers = std::max(deck.model.layers, 2);
  const KindLimits& limits = entry_of(deck.schedule.kind).limits;
  deck.schedule = {.kind = deck.schedule.kind,
                   .virtual_stages = limits.two_partitions || deck.schedule.file ? 1 : limits.least_virtual,
                   .forwards_first = is_svpp ? std::optional{1} : std::nullopt,
                   .split_backward = deck.schedule.split_backward,
                   .file = deck.schedule.file};
  if (deck.memory.recompute_by_stage) {
    const std::int32_t stages = limits.two_partitions ? deck.schedule.backward_virtual : deck.schedule.virtual_stages;
    deck.memory.recompute_by_stage->resize(static_cast<std::size_t>(stages));
    deck.memory.recompute = standard.memory.recompute;  // not written beside the list
  }
  if (limits.streams_parameters && !deck.schedule.file) stream_and_recompute(deck.memory);
  if (deck.memory.recompute == Recompute::full || deck.memory.recompute_by_stage) deck.memory.offload_activations = 0;
  deck.schedule.exchange = standard.schedule.exchange;
  deck.schedule.vocabulary_parallel = false;
  if (deck.schedule.file) deck.schedule.kind = standard.schedule.kind;  // not written beside a file
  const bool may_be_late = deck.device.kind == DeviceKind::priced && deck.testing.delay_rank;
  deck.testing.delay_rank = may_be_late ? std::optional{0} : std::nullopt;
  const bool may_be_killed = deck.device.kind != DeviceKind::priced && deck.testing.kill.step > 0;
  deck.testing.kill = may_be_killed ? KillOptions{deck.training.steps, 0, "3B1"} : KillOptions{};
  auto& rate = deck.training.optimizer.learning_rate;
  rate.minimum = rate.peak / 3;
  deck.memory.rollback = deck.training.optimizer.clip_mode == ClipMode::exact ? deck.memory.rollback : Rollback::copy;
  rate.decay_steps = rate.decay == Decay::wsd ? std::optional{deck.training.steps} : std::nullopt;
  return deck;
}

TEST(EffectiveDeck, ReadsBackToTheSameDeck) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    const Deck deck = resolved(random_deck(seed));
    const auto broken = check_deck(deck);
    ASSERT_THAT(broken, testing::IsEmpty()) << broken.front().reason << "\n" << effective_deck(deck);

    const std::string text = effective_deck(deck);

    ASSERT_EQ(faults_of(text), "") << text;
    ASSERT_EQ(read(text), deck) << text;
    ASSERT_EQ(effective_deck(read(text)), text);
  }
}

TEST(EffectiveDeck, WritesLimitsOfNumbersToTheBit) {
  Deck deck = read(smallest_deck);
  deck.training.optimizer.epsilon = std::numeric_limits<double>::denorm_min();
  deck.training.optimizer.clip = std::numeric_limits<double>::max();
  deck.training.optimizer.weight_decay = 0.1 + 0.2;
  deck.training.seed = std::numeric_limits<std::uint64_t>::max();

  EXPECT_EQ(read(effective_deck(deck)), deck);
}

TEST(EffectiveDeck, StatesWhatWasLeftOut) {
  EXPECT_THAT(effective_deck(Deck{}),
              AllOf(HasSubstr("  kv_heads: 8\n  head_size: 32\n  ffn: 704\n"), HasSubstr("  vocabulary: 256\n")));
}

TEST(EffectiveDeck, LeavesTheKindOutBesideAFile) {
  EXPECT_THAT(effective_deck(Deck{}), HasSubstr("kind: 1f1b"));
  Deck deck;
  deck.schedule.file = "a.csv";
  EXPECT_THAT(effective_deck(deck), Not(HasSubstr("kind: 1f1b")));
}

TEST(DeckHash, DiffersForEveryChangedKey) {
  std::set<std::uint64_t> hashes;
  const int count = 200;
  for (std::uint32_t seed = 0; seed < count; ++seed) hashes.insert(deck_hash(random_deck(seed)));

  EXPECT_EQ(hashes.size(), count);
  EXPECT_EQ(deck_hash(Deck{}), deck_hash(resolved(Deck{})));
}

/// Takes one key after the other away from its value, and names it.
struct Changer {
  explicit Changer(int which) : which_{which} {}
  template <class T>
  void operator()(std::string_view key, T& member, const KeyInfo&) {
    if constexpr (config::Described<T>) {
      describe(*this, member);
    } else if (which_-- == 0) {
      changed = key;
      change(member);
    }
  }
  template <class T>
  void change(T& member) {
    if constexpr (config::Optional<T>) {
      member.emplace();
      change(*member);
    } else if constexpr (std::is_same_v<T, bool>) {
      member = !member;
    } else if constexpr (std::is_enum_v<T>) {
      for (const auto& entry : enum_names(T{})) {
        if (entry.value != member) {
          member = entry.value;
          return;
        }
      }
    } else if constexpr (requires { member.push_back('x'); }) {
      member.push_back('x');
    } else if constexpr (requires { member.emplace_back(); }) {
      member.emplace_back();
    } else if constexpr (requires { member[0] += 0.01; }) {
      member[0] += 0.01;
    } else if constexpr (requires { member.value; }) {
      member.value += 1;
    } else {
      member += 1;
    }
  }
  std::string changed;

 private:
  int which_;
};

TEST(DeckHash, SeesEveryKey) {
  for (int which = 0;; ++which) {
    Deck deck = resolved(Deck{});
    Changer changer{which};
    describe(changer, deck);
    if (changer.changed.empty()) break;
    const bool has_one_value = changer.changed == "kind" && deck == resolved(Deck{});
    if (has_one_value) continue;
    EXPECT_NE(deck_hash(deck), deck_hash(Deck{})) << changer.changed;
  }
}

TEST(ResumeRules, CoverEveryKey) {
  // resume_compatibility throws an internal error for a key that no rule speaks of.
  EXPECT_NO_THROW(resume_compatibility(Deck{}, random_deck(1)));
}

TEST(Listing, DescribesEveryKeyWithASentenceWithoutItsPoint) {
  for (const auto& entry : list_keys(Deck{})) {
    EXPECT_FALSE(entry.info.help.empty()) << entry.path;
    EXPECT_FALSE(entry.info.help.ends_with('.')) << entry.path;
    EXPECT_TRUE(entry.is_section || entry.value || !entry.info.when_absent.empty()) << entry.path;
  }
}

TEST(Listing, HasTheKeysOfTheContract) {
  std::set<std::string> paths;
  for (const auto& entry : list_keys(Deck{})) paths.insert(entry.path);
  for (const char* path : {"model.family",
                           "model.layers",
                           "model.hidden",
                           "model.heads",
                           "model.kv_heads",
                           "model.ffn",
                           "model.vocabulary",
                           "model.tie_embeddings",
                           "model.precision",
                           "data.train",
                           "data.validation",
                           "data.tokenizer",
                           "training.steps",
                           "training.sequence",
                           "training.global_batch",
                           "training.micro_batch",
                           "training.seed",
                           "training.learning_rate.peak",
                           "training.learning_rate.warmup",
                           "training.learning_rate.decay",
                           "training.learning_rate.minimum",
                           "training.betas",
                           "training.weight_decay",
                           "training.clip",
                           "training.clip_mode",
                           "training.non_finite",
                           "training.validate_every",
                           "parallel.pipeline",
                           "parallel.data",
                           "schedule.kind",
                           "schedule.virtual",
                           "schedule.file",
                           "memory.device",
                           "memory.recompute",
                           "device.kind",
                           "device.threads",
                           "output.directory",
                           "output.checkpoint_every",
                           "output.keep",
                           "output.trace"}) {
    EXPECT_TRUE(paths.contains(path)) << path;
  }
}

TEST(Manual, InTheRepositoryIsFresh) {
  std::ifstream file{"doc/decks.md"};
  std::ostringstream text;
  text << file.rdbuf();

  EXPECT_TRUE(text.str() == manual()) << "doc/decks.md is not what the options structs say now; write it again with\n"
                                         "  build/penstock help deck --markdown > doc/decks.md";
}

TEST(KeyHelp, NamesEveryKey) {
  const std::string help = key_help();
  for (const auto& entry : list_keys(Deck{})) EXPECT_THAT(help, HasSubstr(entry.path));
}

}  // namespace
}  // namespace penstock
