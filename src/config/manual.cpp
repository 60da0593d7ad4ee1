// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "config/listing.hpp"

namespace penstock {
namespace {

constexpr std::string_view introduction = R"(# Decks

<!-- Generated from the options structs: build/penstock help deck --markdown > doc/decks.md -->

A deck is a YAML file that says all of a run: `mpirun -n 4 penstock train DECK`. Its keys stand in sections; a key that is
left out has the default given here. `input/` holds decks to start from.

* **Lists** are written `[doc, src]` or as lines that begin with `-`; a single text may stand for a list of one.
* **Sizes**: `2 GiB` (2^31 bytes), `2GB` (2 x 10^9), `512 MiB`, `1.5 GiB`, or bytes, `4096`.
* **Durations**: `90 s`, `5 min`, `2 h`, `1 d`, `500 ms`, or seconds, `90`.
* **On the command line** `--set training.steps=20` takes the place of what the deck says; values are YAML, too:
  `--set 'data.train=[doc, src]'`. It can be given many times; the last one counts.
* **Faults** are shown all at once, as `file:line:column: key: reason`, before anything runs; the program then ends with exit
  code 2. A key or section that does not exist is a fault, never ignored.
* **Keys without effect**: a value that asks for what the run would not do, such as `weight_grain: product` where no weight
  gradients are placed, is a fault, too. One about what the run has no use for, such as `trace_steps` without a trace, is told at
  the start, with its place. A default that is written out is taken, and so are sections that other commands read (`plan`,
  `exposure`, `hardware`).
* **Another kind** by `--set schedule.kind=...`: keys of the deck's section `schedule` that this kind has no use for count as left
  out, and are told at the start. So one deck compares kinds: `--set schedule.kind=mobius` over a deck of SPipe.
* YAML's anchors, aliases, merge keys and tags are not read; a deck is one document of at most 1 MiB in UTF-8.

The run's folder holds the deck as it was understood, every key written out, as `deck.yaml`.
)";

/// What a key takes, in one phrase: type, unit, range.
std::string takes(const KeyEntry& entry) {
  std::string text = entry.type;
  if (!entry.info.unit.empty()) text += fmt::format(" ({})", entry.info.unit);
  if (!entry.range.empty()) text += ", " + entry.range;
  return text;
}

std::string default_text(const KeyEntry& entry) {
  if (entry.info.presence == Presence::required) return "must be given";
  if (!entry.value) return std::string{entry.info.when_absent};
  return *entry.value;
}

/// A bar would end the table's cell.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string table_row(const KeyEntry& entry, std::string_view section) {
  const std::string key = section.empty() ? entry.path : entry.path.substr(section.size() + 1);
  const bool is_value = entry.value && entry.info.presence == Presence::optional;
  const std::string standard = is_value ? fmt::format("`{}`", cell(default_text(entry))) : cell(default_text(entry));
  std::string help{entry.info.help};
  if (!entry.info.not_beside.empty()) help += fmt::format("; not beside `{}`", entry.info.not_beside);
  return fmt::format("| `{}` | {} | {} | {} |\n", key, cell(takes(entry)), standard, cell(help));
}

constexpr std::string_view table_head = "| key | takes | default | meaning |\n|---|---|---|---|\n";

std::string section_title(const KeyEntry& entry) {
  return fmt::format("\n## {}\n\nThe section `{}`: {}.\n\n{}", entry.path, entry.path, entry.info.help, table_head);
}

std::string outer_key_title(const KeyEntry& entry) {
  return fmt::format("\n## {}\n\nThe key `{}` stands in no section.\n\n{}", entry.path, entry.path, table_head);
}

std::string help_line(const KeyEntry& entry) {
  if (entry.is_section) return fmt::format("\n{}: {}\n", entry.path, entry.info.help);
  return fmt::format("  {:<38} {}\n  {:<38} takes {}; default: {}\n", entry.path, entry.info.help, "", takes(entry),
                     default_text(entry));
}

}  // namespace

std::string key_help() {
  std::string text = "The keys of a deck (doc/decks.md has them with an introduction):\n";
  for (const auto& entry : list_keys(Deck{})) text += help_line(entry);
  return text;
}

std::string manual() {
  std::string text{introduction};
  std::string section;
  for (const auto& entry : list_keys(Deck{})) {
    const bool is_outer = entry.parent().empty();
    if (is_outer) {
      section = entry.is_section ? entry.path : "";
      text += entry.is_section ? section_title(entry) : outer_key_title(entry);
    }
    if (!entry.is_section) text += table_row(entry, section);
  }
  return text;
}

}  // namespace penstock
