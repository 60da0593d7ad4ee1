// SPDX-License-Identifier: Apache-2.0
#include "config/document.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "config/words.hpp"
#include "data/utf8.hpp"

namespace penstock::config {
namespace {

/// Thrown out of the parser when reading on makes no sense; the fault is already noted.
struct Abandon {};

/// Builds the value from the parser's events. Events rather than yaml-cpp's nodes: those merge keys that stand twice,
/// expand aliases and recurse.
class Builder : public YAML::EventHandler {
 public:
  Builder(int override_index, Faults& faults) : override_index_{override_index}, faults_{faults} {}
  Value take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ == 0) return;
    faults_.add(position(mark), "", "a second document begins here; a deck is one");
    throw Abandon{};
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { place(value(mark, Value::Kind::nothing)); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    faults_.add(position(mark), path(), "is an alias (*name); decks have none: write the value out");
    place(value(mark, Value::Kind::nothing));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& text) override {
    refuse_tag(mark, tag);
    Value scalar = value(mark, Value::Kind::scalar);
    scalar.text = text;
    scalar.quoted = tag == "!";
    place(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    open(value(mark, Value::Kind::list));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    open(value(mark, Value::Kind::mapping));
  }
  void OnMapEnd() override { close(); }

 private:
  /// A list or mapping that is still being read; of a mapping, the key whose value comes next.
  struct Frame {
    Value value;
    bool has_key = false;
    std::string key;
    Position key_position;
  };

  Position position(const YAML::Mark& mark) const {
    return mark.is_null() ? Position{override_index_} : Position{override_index_, mark.line + 1, mark.column + 1};
  }

  Value value(const YAML::Mark& mark, Value::Kind kind) const {
    Value result;
    result.kind = kind;
    result.position = position(mark);
    return result;
  }

  std::string path() const {
    std::string result;
    for (const auto& frame : frames_) {
      if (frame.has_key) result += (result.empty() ? "" : ".") + shown(frame.key);
    }
    return result;
  }

  /// "?" and "!" stand for no tag, of a plain and of a quoted scalar; "" for none of a list or mapping.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    faults_.add(position(mark), path(), fmt::format("has the tag '{}'; decks have none: leave it out", shown(tag)));
  }

  void open(Value container) {
    if (frames_.size() >= deepest_nesting) {
      faults_.add(container.position, path(), fmt::format("is nested more than {} deep", deepest_nesting));
      throw Abandon{};
    }
    frames_.push_back({std::move(container)});
  }

  void close() {
    Value finished = std::move(frames_.back().value);
    frames_.pop_back();
    place(std::move(finished));
  }

  /// Puts a finished value where it belongs: in the list, as the mapping's next key or value, or at the root.
  void place(Value item) {
    if (frames_.empty()) {
      root_ = std::move(item);
    } else if (frames_.back().value.kind == Value::Kind::list) {
      frames_.back().value.items.push_back(std::move(item));
    } else if (!frames_.back().has_key) {
      take_key(frames_.back(), item);
    } else {
      add_entry(frames_.back(), std::move(item));
    }
  }

  void take_key(Frame& frame, const Value& item) {
    if (item.kind != Value::Kind::scalar) {
      faults_.add(item.position, path(), "has " + description(item) + " where the name of a key belongs");
      throw Abandon{};
    }
    frame.has_key = true;
    frame.key = item.text;
    frame.key_position = item.position;
  }

  void add_entry(Frame& frame, Value item) {
    const std::string where = path();
    frame.has_key = false;
    if (const auto* first = frame.value.find(frame.key); first != nullptr) {
      faults_.add(frame.key_position, where,
                  fmt::format("stands twice, first in line {}; keep one", first->position.line));
      return;
    }
    if (frame.value.entries.size() >= most_entries) {
      faults_.add(frame.key_position, where,
                  fmt::format("is beyond the {} keys that a section may have", most_entries));
      throw Abandon{};
    }
    frame.value.entries.push_back({frame.key, frame.key_position, std::move(item)});
  }

  int override_index_;
  Faults& faults_;
  int documents_ = 0;
  Value root_;
  std::vector<Frame> frames_;
};

/// Line and column of the byte at `offset`.
Position position_of(std::string_view text, std::size_t offset, int override_index) {
  Position position{override_index};
  for (const char c : text.substr(0, offset)) {
    position.column = c == '\n' ? 1 : position.column + 1;
    position.line += c == '\n' ? 1 : 0;
  }
  return position;
}

bool is_readable(std::string_view text, int override_index, Faults& faults) {
  if (text.size() > largest_document) {
    faults.add({override_index}, "", "is larger than 1 MiB; a deck is a short text");
    return false;
  }
  if (const auto offset = first_non_text(text)) {
    const auto place = static_cast<std::size_t>(*offset);
    faults.add(position_of(text, place, override_index), "",
               fmt::format("the byte 0x{:02x} is no UTF-8 text; save the file as UTF-8",
                           static_cast<unsigned char>(text[place])));
    return false;
  }
  return true;
}

void run_parser(std::string_view text, Builder& builder) {
  std::istringstream stream{std::string{text}};
  YAML::Parser parser{stream};
  while (parser.HandleNextDocument(builder)) {
  }
}

/// yaml-cpp takes quotes that are still open at the end of a text whose last character is a line break; without that
/// character it finds the fault. Throws what the parser throws.
void refuse_open_quotes(std::string_view text, int override_index) {
  Faults of_the_read_pass;
  Builder builder{override_index, of_the_read_pass};
  run_parser(text.substr(0, text.find_last_not_of(" \t\r\n") + 1), builder);
}

/// The number of the first line, up to `last`, that a tab indents, which the parser's own message does not tell; or 0.
int line_with_tab(std::string_view text, int last) {
  for (int line = 1; line <= last; ++line) {
    const std::string_view indent = text.substr(0, text.find_first_not_of(" \t"));
    if (indent.find('\t') != std::string_view::npos) return line;
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    if (text.empty()) break;
  }
  return 0;
}

void add_syntax_fault(const YAML::Exception& exception, std::string_view text, int override_index, Faults& faults) {
  const bool is_placed = !exception.mark.is_null();
  const int line = is_placed ? exception.mark.line + 1 : 1;
  if (const int tab = line_with_tab(text, line); tab > 0) {
    faults.add({override_index, tab}, "", "a tab indents this line; YAML wants spaces");
    return;
  }
  faults.add({override_index, line, is_placed ? exception.mark.column + 1 : 1}, "",
             "is not readable as YAML: " + exception.msg);
}

}  // namespace

const Value::Entry* Value::find(std::string_view key) const {
  for (const auto& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

Value::Entry* Value::find(std::string_view key) {
  for (auto& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

Value parse_document(std::string_view text, int override_index, Faults& faults) {
  if (!is_readable(text, override_index, faults)) return {};
  Builder builder{override_index, faults};
  try {
    run_parser(text, builder);
    refuse_open_quotes(text, override_index);
  } catch (const Abandon&) {
    return {};
  } catch (const YAML::Exception& exception) {
    add_syntax_fault(exception, text, override_index, faults);
    return {};
  }
  return builder.take();
}

std::string description(const Value& value) {
  switch (value.kind) {
    case Value::Kind::nothing:
      return "nothing";
    case Value::Kind::scalar:
      return fmt::format("{}'{}'", value.quoted ? "the text " : "", shown(value.text));
    case Value::Kind::list:
      return "a list";
    case Value::Kind::mapping:
      return "a section";
  }
  return "nothing";
}

}  // namespace penstock::config
