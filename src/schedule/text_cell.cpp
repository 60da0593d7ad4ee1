// SPDX-License-Identifier: Apache-2.0
#include "schedule/text_cell.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/index.hpp"
#include "schedule/semantics.hpp"
#include "schedule/weight_parts.hpp"

namespace penstock {

namespace {

constexpr std::int32_t id_limit = 1'000'000;  // stages, micro-batches and slices stay below
constexpr std::string_view op_list =
    "F, B, I, W, R, SEND_F, RECV_F, SEND_B, RECV_B, SEND_C, RECV_C, OFFLOAD_A, RELOAD_A, EF, EB, VF, VB, FETCH_F, "
    "FETCH_B, EVICT_F, EVICT_B, OFFLOAD_G, REDUCE, STEP, UNDO, VALIDATE";

// PyTorch's actions on sharded parameters, which mean nothing where parameters stay resident and reductions are
// derived.
constexpr std::array<std::string_view, 3> skipped_ops{"UNSHARD", "RESHARD", "REDUCE_GRAD"};

std::optional<Op> op_named(std::string_view name) {
  for (int op = 0; op < op_count; ++op) {
    if (name_of(static_cast<Op>(op)) == name) return static_cast<Op>(op);
  }
  return std::nullopt;
}

/// Takes tokens off the front of a cell.
class CellReader {
 public:
  CellReader(const Cell& cell, std::string_view text) : cell_{cell}, rest_{text} {}

  std::string_view while_any_of(std::string_view allowed) {
    const auto end = std::min(rest_.find_first_not_of(allowed), rest_.size());
    const auto taken = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return taken;
  }

  std::optional<std::int32_t> number() {
    std::string_view digits = while_any_of("0123456789");
    if (digits.empty()) return std::nullopt;
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size() - 1));
    std::int32_t value = 0;
    for (const char digit : digits) {
      value = value * 10 + (digit - '0');
      if (value >= id_limit) cell_.refuse("stages, micro-batches and slices are numbers below {}", id_limit);
    }
    return value;
  }

  bool skip(char expected) {
    if (rest_.empty() || rest_.front() != expected) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool at_end() const { return rest_.empty(); }

 private:
  const Cell& cell_;
  std::string_view rest_;
};

/// What one action's text says, each part where it is there.
struct Parts {
  std::optional<std::int32_t> stage;
  std::string_view name;
  std::optional<std::int32_t> micro_batch;
  std::optional<std::int32_t> slice;
  std::optional<std::int32_t> part;
};

std::int32_t part_number(const Cell& cell, CellReader& reader) {
  const auto part = reader.number();
  if (part && *part >= 1 && *part <= most_weight_parts) return *part;
  cell.refuse("expected a number behind the slash, from 1 to {}", most_weight_parts);
}

Parts split_action(const Cell& cell, std::string_view text) {
  CellReader reader{cell, text};
  Parts parts;
  parts.stage = reader.number();
  parts.name = reader.while_any_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
  parts.micro_batch = reader.number();
  if (parts.micro_batch && reader.skip('.')) {
    parts.slice = reader.number();
    if (!parts.slice) cell.refuse("expected the number of a slice behind the dot");
  }
  if (parts.micro_batch && reader.skip('/')) parts.part = part_number(cell, reader);
  if (parts.name.empty() || !reader.at_end()) {
    cell.refuse(
        "expected <stage><op><micro-batch>, as 2F0, with an optional .<slice>, and of W an optional /<part>, of FETCH "
        "and EVICT /<number>; the ops are {}",
        op_list);
  }
  return parts;
}

Action action_from(const Cell& cell, Op op, const Parts& parts) {
  const std::string_view name = name_of(op);
  const bool has_stage = op != Op::validate;
  if (has_stage && !parts.stage) cell.refuse("expected the number of a stage before {}", name);
  if (!has_stage && parts.stage) cell.refuse("expected {} without a stage: it is an action of the rank", name);
  if (is_per_micro_batch(op) && !parts.micro_batch) cell.refuse("expected the number of a micro-batch behind {}", name);
  if (!names_micro_batch(op) && parts.micro_batch)
    cell.refuse("expected {} without a micro-batch: it runs once per step", name);
  if (parts.part && op != Op::backward_weight && !begins_or_ends_stay(op))
    cell.refuse("expected {} without a slash: only W has parts, and only stays on the device are numbered", name);
  return {op, Stage{parts.stage.value_or(0)}, MicroBatch{parts.micro_batch.value_or(0)}, Slice{parts.slice.value_or(0)},
          static_cast<std::uint8_t>(parts.part.value_or(0))};
}

/// The action of a text; empty for those that are skipped.
std::optional<Action> read_action(const Cell& cell, std::string_view text) {
  const Parts parts = split_action(cell, text);
  if (const auto op = op_named(parts.name)) return action_from(cell, *op, parts);
  if (std::find(skipped_ops.begin(), skipped_ops.end(), parts.name) != skipped_ops.end()) return std::nullopt;
  cell.refuse("there is no op {}; the ops are {}", shown(parts.name), op_list);
}

/// The two actions of `(0F3;7B1)OVERLAP_F_B`, in order.
void read_pair(const Cell& cell, std::string_view text, std::vector<Action>& out) {
  constexpr std::string_view ending = ")OVERLAP_F_B";
  const auto middle = text.find(';');
  const bool has_form = text.size() > ending.size() && text.substr(text.size() - ending.size()) == ending &&
                        middle != std::string_view::npos;
  if (!has_form) cell.refuse("expected a pair as (0F3;7B1)OVERLAP_F_B");
  const auto first = read_action(cell, trimmed(text.substr(1, middle - 1)));
  const auto second = read_action(cell, trimmed(text.substr(middle + 1, text.size() - ending.size() - middle - 1)));
  const bool is_pair =
      first && first->op == Op::forward && second && (second->op == Op::backward || second->op == Op::backward_input);
  if (!is_pair) cell.refuse("expected F and then B or I in the pair");
  out.push_back(*first);
  out.push_back(*second);
}

}  // namespace

std::string shown(std::string_view cell) {
  constexpr std::size_t longest = 40;
  std::string text{cell.substr(0, longest)};
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return cell.size() > longest ? text + "..." : text;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const auto begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

void read_actions(const Cell& cell, std::vector<Action>& out) {
  if (cell.text.empty()) return;
  if (cell.text.front() == '(') {
    read_pair(cell, cell.text, out);
  } else if (const auto action = read_action(cell, cell.text)) {
    out.push_back(*action);
  }
}

}  // namespace penstock
