// SPDX-License-Identifier: Apache-2.0
#include "schedule/text.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "schedule/source_cells.hpp"
#include "schedule/text_cell.hpp"

namespace penstock {

namespace {

constexpr std::size_t cell_limit = 4'000'000;      // of a file
constexpr std::uintmax_t file_limit = 64U << 20U;  // bytes

std::string_view unquoted(std::string_view cell) {
  const bool is_quoted = cell.size() >= 2 && cell.front() == '"' && cell.back() == '"';
  return is_quoted ? trimmed(cell.substr(1, cell.size() - 2)) : cell;
}

/// Whether a schedule that only evaluates can have the op.
bool is_in_evaluation(Op op) {
  return op == Op::forward || op == Op::send_forward || op == Op::receive_forward || op == Op::fetch_forward ||
         op == Op::evict_forward || op == Op::embed_forward || op == Op::vocabulary_forward;
}

/// Whether a schedule with the op keeps parameters on the device for a while only.
bool ends_a_stay(Op op) {
  return op == Op::evict_forward || op == Op::evict_backward;
}

/// An action with where the file has it.
struct Read {
  Action action;
  std::size_t column;
};

bool has_evictions(const std::vector<Read>& row) {
  return std::any_of(row.begin(), row.end(), [](const Read& read) { return ends_a_stay(read.action.op); });
}

/// Whether the row fetches a stage of one pass while one of the other pass with the same number is there: then these
/// are two stages.
bool has_two_stays_at_once(const std::vector<Read>& row) {
  std::map<Stage, Op> stays;
  for (const auto& [action, column] : row) {
    if (ends_a_stay(action.op)) stays.erase(action.stage);
    if (action.op != Op::fetch_forward && action.op != Op::fetch_backward) continue;
    const auto [stay, is_new] = stays.emplace(action.stage, action.op);
    if (!is_new && stay->second != action.op) return true;
  }
  return false;
}

/// Reads the rows, then derives the schedule's shape.
class CsvReader {
 public:
  explicit CsvReader(const std::string& name) : name_{name} {}

  Schedule read(std::string_view text) {
    read_rows(text);
    for (const auto& row : rows_) {
      for (const Read& read : row) shares_vocabulary_ = shares_vocabulary_ || is_collective(read.action.op);
      streams_parameters_ = streams_parameters_ || has_evictions(row);
      decoupled_ = decoupled_ || has_two_stays_at_once(row);
    }
    for (const auto& row : rows_) {
      for (const Read& read : row) widen(read.action);
    }
    settle_stages();
    check_size();
    count_parts();
    place_stages();
    check_places();
    return result();
  }

  /// visit(rank, action, cell from 1) for all actions of what was read, in the order of the file.
  template <class Visit>
  void visit_cells(const Visit& visit_cell) const {
    for (const Rank rank : all<Rank>(static_cast<std::int32_t>(rows_.size()))) {
      for (const auto& [action, column] : rows_[static_cast<std::size_t>(rank.value())]) {
        visit_cell(rank, action, column);
      }
    }
  }

 private:
  void read_rows(std::string_view text) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (text.substr(0, byte_order_mark.size()) == byte_order_mark) text.remove_prefix(byte_order_mark.size());
    const auto last = text.find_last_not_of(" \t\r\n");
    if (last == std::string_view::npos)
      fail(ExitCode::damaged_input, "{}: the file is empty; expected a row of actions per rank", name_);
    text = text.substr(0, last + 1);
    for (std::size_t begin = 0; begin <= text.size();) {
      const auto end = std::min(text.find('\n', begin), text.size());
      read_row(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  void read_row(std::string_view line) {
    rows_.emplace_back();
    std::size_t column = 0;
    for (std::size_t begin = 0; begin <= line.size();) {
      const auto end = std::min(line.find(',', begin), line.size());
      const Cell cell{name_, rows_.size(), ++column, unquoted(trimmed(line.substr(begin, end - begin)))};
      if (++cells_ > cell_limit) cell.refuse("more than {} cells; is this a schedule?", cell_limit);
      read_cell(cell);
      begin = end + 1;
    }
    if (!rows_.back().empty()) return;
    fail(ExitCode::damaged_input,
         "{}: row {} has no action; each row is a rank, and each rank holds at least one stage", name_, rows_.size());
  }

  void read_cell(const Cell& cell) {
    std::vector<Action> actions;
    read_actions(cell, actions);
    for (const Action& action : actions) rows_.back().push_back({action, cell.column});
    actions_ += actions.size();
  }

  void widen(const Action& action) {
    decoupled_ = decoupled_ || action.op == Op::send_checkpoint || action.op == Op::receive_checkpoint;
    auto& stages = pass_of(action.op) == Pass::forward ? shape_.stages : backward_stages_;
    if (!may_be_of_share(action.op)) stages = std::max(stages, action.stage.value() + 1);
    shape_.micro_batches = std::max(shape_.micro_batches, action.micro_batch.value() + 1);
    shape_.slices = std::max(shape_.slices, action.slice.value() + 1);
  }

  /// Shares of the vocabulary are numbered behind the stages, which actions that both have cannot count.
  bool may_be_of_share(Op op) const {
    return shares_vocabulary_ && (is_collective(op) || op == Op::fetch_forward || !names_micro_batch(op));
  }

  /// The two passes are cut into stages of their own where checkpoints are sent, or where stages come and go and those
  /// of one number are two: on one device at once, on two ranks, or in one pass alone. Else they share the larger
  /// number.
  void settle_stages() {
    const bool differ = shape_.stages != backward_stages_ || has_passes_apart();
    decoupled_ = decoupled_ || (streams_parameters_ && differ);
    if (!decoupled_) shape_.stages = std::max(shape_.stages, backward_stages_);
  }

  /// Whether a stage has its forwards in one row and its backwards in another.
  bool has_passes_apart() const {
    PerStage<std::optional<std::size_t>> row_of(shape_.stages, std::nullopt);
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      for (const auto& [action, column] : rows_[row]) {
        if (action.op == Op::forward) row_of[action.stage] = row;
      }
    }
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      for (const auto& [action, column] : rows_[row]) {
        const bool is_backward = action.op == Op::backward || action.op == Op::backward_input;
        if (is_backward && row_of.contains(action.stage) && row_of[action.stage].value_or(row) != row) return true;
      }
    }
    return false;
  }

  /// The largest part of a stage is the number of its parts.
  void count_parts() {
    PerStage<std::uint8_t> parts(decoupled_ ? backward_stages_ : shape_.stages, 1);
    bool has_parts = false;
    for (const auto& row : rows_) {
      for (const Read& read : row) {
        if (read.action.op != Op::backward_weight || read.action.part == 0) continue;
        has_parts = true;
        parts[read.action.stage] = std::max(parts[read.action.stage], read.action.part);
      }
    }
    if (has_parts) weight_parts_ = std::move(parts);
  }

  /// A slip such as 2F00000 must not make the program expect millions of forwards.
  void check_size() const {
    const double forwards = static_cast<double>(shape_.stages) * shape_.micro_batches * shape_.slices;
    if (forwards <= 4.0 * static_cast<double>(actions_) + 1000.0) return;
    fail(ExitCode::damaged_input,
         "{}: the largest numbers ask for {} stages x {} micro-batches x {} slices, and the file has only {} actions; "
         "expected at least one forward for each",
         name_, shape_.stages, shape_.micro_batches, shape_.slices, actions_);
  }

  void place_stages() {
    shape_.ranks = static_cast<std::int32_t>(rows_.size());
    rank_of_ = places_of(shape_.stages, {Op::forward}, "forward");
    if (decoupled_) backward_rank_of_ = places_of(backward_stages_, {Op::backward, Op::backward_input}, "backward");
  }

  /// Where the stages of a pass have the ops that place them.
  PerStage<Rank> places_of(std::int32_t stages, const std::vector<Op>& ops, std::string_view pass) const {
    PerStage<Rank> places(stages, Rank{-1});
    visit([&](const Cell& cell, Rank rank, const Action& action) {
      if (std::find(ops.begin(), ops.end(), action.op) == ops.end()) return;
      Rank& place = places[action.stage];
      if (place == Rank{-1}) place = rank;
      if (place == rank) return;
      cell.refuse("stage {} has a {} in row {} already; a stage is on one rank", action.stage, pass, place.value() + 1);
    });
    for (const Stage stage : all<Stage>(stages)) {
      if (places[stage] != Rank{-1}) continue;
      fail(ExitCode::damaged_input, "{}: stage {} has no {}; expected {}{}0 and so on, in the row of its rank", name_,
           stage, pass, stage, name_of(ops.front()));
    }
    return places;
  }

  void check_places() const {
    visit([&](const Cell& cell, Rank rank, const Action& action) {
      if (action.op == Op::validate || action.op == Op::send_checkpoint) return;
      const bool is_backward = decoupled_ && pass_of(action.op) == Pass::backward;
      if (may_be_of_share(action.op) && !rank_of_.contains(action.stage)) return;  // rule V1 looks at them
      const Rank place = (is_backward ? backward_rank_of_ : rank_of_)[action.stage];
      if (place == rank) return;
      cell.refuse("stage {} has its {}s in row {}; expected all its actions there", action.stage,
                  is_backward ? "backward" : "forward", place.value() + 1);
    });
  }

  /// The backward stages, each fed by the forward stage in which it begins if all stages of a pass are equally long.
  BackwardStages backward_stages() const {
    BackwardStages stages{backward_rank_of_, {}};
    for (const Stage stage : all<Stage>(backward_stages_)) {
      const std::int64_t begin = std::int64_t{stage.value()} * shape_.stages;
      stages.fed_by.push_back(Stage{static_cast<std::int32_t>(begin / backward_stages_)});
    }
    return stages;
  }

  template <class Visit>
  void visit(const Visit& visit_action) const {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      for (const Read& read : rows_[row]) {
        const std::string text = to_text(read.action, shape_.slices);
        visit_action(Cell{name_, row + 1, read.column, text}, Rank{static_cast<std::int32_t>(row)}, read.action);
      }
    }
  }

  Schedule result() const {
    Schedule schedule;
    schedule.name = name_;
    schedule.shape = shape_;
    schedule.rank_of = rank_of_;
    schedule.forward_only = true;
    schedule.weight_parts = weight_parts_;
    schedule.shares_vocabulary = shares_vocabulary_;
    schedule.streams_parameters = streams_parameters_;
    if (decoupled_) schedule.backward = backward_stages();
    schedule.recompute = PerStage<bool>(decoupled_ ? backward_stages_ : shape_.stages, decoupled_);
    for (const auto& row : rows_) {
      std::vector<Action> list;
      bool is_validated = false;
      for (const Read& read : row) {
        list.push_back(read.action);
        const Op op = read.action.op;
        is_validated = is_validated || op == Op::validate;
        if (op == Op::undo || (op == Op::step && is_validated)) schedule.needs_norm = true;
        if (op == Op::recompute) schedule.recompute[read.action.stage] = true;
        if (op == Op::offload_activations) schedule.offloads_activations = true;
        if (!is_in_evaluation(op)) schedule.forward_only = false;
      }
      schedule.actions.push_back(std::move(list));
    }
    return schedule;
  }

  const std::string& name_;
  std::vector<std::vector<Read>> rows_;
  std::size_t cells_ = 0;
  std::size_t actions_ = 0;
  ScheduleShape shape_;
  PerStage<Rank> rank_of_;
  bool decoupled_ = false;  // the passes have stages of their own
  bool shares_vocabulary_ = false;
  bool streams_parameters_ = false;
  std::int32_t backward_stages_ = 1;
  PerStage<Rank> backward_rank_of_;
  PerStage<std::uint8_t> weight_parts_;
};

}  // namespace

std::string to_text(const Action& action, std::int32_t slices) {
  if (action.op == Op::validate) return std::string{name_of(action.op)};
  std::string text = fmt::format("{}{}", action.stage, name_of(action.op));
  // A stage that is fetched once a step needs no number of the micro-batch that it is fetched for.
  const bool is_first = action.micro_batch.value() == 0 && action.slice.value() == 0 && action.part == 0;
  if (!is_per_micro_batch(action.op) && (is_first || !names_micro_batch(action.op))) return text;
  text += fmt::format("{}", action.micro_batch);
  if (slices > 1 || action.slice.value() != 0) text += fmt::format(".{}", action.slice);
  if (action.part != 0) text += fmt::format("/{}", action.part);
  return text;
}

std::string write_schedule_csv(const Schedule& schedule) {
  std::string text;
  for (const auto& list : schedule.actions) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) text += ',';
      text += to_text(list[i], schedule.shape.slices);
    }
    text += '\n';
  }
  return text;
}

Schedule read_schedule_csv(std::string_view text, const std::string& name) {
  return CsvReader{name}.read(text);
}

SourceCells::SourceCells(std::string_view csv, const std::string& name) {
  CsvReader reader{name};
  static_cast<void>(reader.read(csv));
  reader.visit_cells([this](Rank rank, const Action& action, std::size_t cell) {
    cells_[{rank, action}].push_back(cell);
  });
}

std::optional<std::size_t> SourceCells::cell_of(const Schedule& schedule, Rank rank, std::int32_t position) const {
  const auto& list = schedule.actions[rank];
  const Action& action = list[static_cast<std::size_t>(position)];
  const auto cells = cells_.find({rank, action});
  const auto before = static_cast<std::size_t>(std::count(list.begin(), list.begin() + position, action));
  if (cells == cells_.end() || before >= cells->second.size()) return std::nullopt;
  return cells->second[before];
}

Schedule load_schedule_csv(const std::string& path) {
  std::error_code status;
  const auto bytes = std::filesystem::file_size(path, status);
  if (status) fail(ExitCode::damaged_input, "{}: reading the schedule: {}", path, status.message());
  if (bytes > file_limit) {
    fail(ExitCode::damaged_input, "{}: the file has {} bytes; expected a schedule of at most {}", path, bytes,
         file_limit);
  }
  std::ifstream file{path, std::ios::binary};
  const std::string text{std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
  if (!file) fail(ExitCode::damaged_input, "{}", system_error_text(path + ": reading the schedule", errno));
  return read_schedule_csv(text, path);
}

}  // namespace penstock
