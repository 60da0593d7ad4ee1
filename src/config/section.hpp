// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/describe.hpp"
#include "config/document.hpp"
#include "config/faults.hpp"
#include "config/scalar.hpp"

namespace penstock::config {

/// What the reading of one file gathers, and what its messages need to know.
struct Reading {
  Faults faults;
  std::map<std::string, Position, std::less<>> positions;  ///< of the value of each key that the file gives
  std::string_view entry;                                  ///< what the outermost level holds: "section"
  std::vector<std::string> known_paths;                    ///< of all keys, for those that stand in the wrong section
};

// Sentences of the reader, which are the same for all types.
std::string wrong_choice_text(const Value& value, const std::vector<std::string>& names, const KeyInfo& info);
std::string too_large_text(const std::string& text);
void refuse_unknown_keys(const Value& section, const std::string& path, const std::vector<std::string>& known,
                         Reading& reading);

/// The visitor that fills an options struct from a mapping; every fault goes to the reading, the member keeps its
/// default.
class SectionReader {
 public:
  /// @param section a mapping, or null for a section that the deck leaves out: its required keys are then missing
  /// @param position where to say that
  SectionReader(Reading& reading, const Value* section, const Position& position, std::string path)
      : reading_{reading}, section_{section}, position_{position}, path_{std::move(path)} {}

  template <class T>
  void operator()(std::string_view key, T& member, const KeyInfo& info) {
    known_.emplace_back(key);
    const std::string path = path_.empty() ? std::string{key} : path_ + "." + std::string{key};
    const Value::Entry* entry = section_ == nullptr ? nullptr : section_->find(key);
    if (entry != nullptr) reading_.positions[path] = entry->value.position;
    if (reading_.faults.concern(path)) return;
    if constexpr (Described<T>) {
      read_section(entry, path, member);
    } else if (entry == nullptr) {
      if (info.presence == Presence::required) refuse(position_, path, "must be given: " + std::string{info.help});
    } else {
      refuse_rivals(*entry, path, info);
      read(entry->value, path, member, info);
    }
  }

  /// Refuses the keys that no call named.
  void finish() {
    if (section_ != nullptr) refuse_unknown_keys(*section_, path_, known_, reading_);
  }

 private:
  bool refuse(const Position& position, const std::string& path, std::string reason) {
    reading_.faults.add(position, path, std::move(reason));
    return false;
  }

  template <class T>
  void read_section(const Value::Entry* entry, const std::string& path, T& member) {
    const Value* value = entry == nullptr ? nullptr : &entry->value;
    const bool is_section =
        value == nullptr || value->kind == Value::Kind::mapping || value->kind == Value::Kind::nothing;
    if (!is_section) {
      refuse(value->position, path,
             "is " + description(*value) + ", expected a section: its keys in lines below, indented, or in {}");
      return;
    }
    const bool has_keys = value != nullptr && value->kind == Value::Kind::mapping;
    SectionReader inner{reading_, has_keys ? value : nullptr, entry == nullptr ? position_ : entry->position, path};
    describe(inner, member);
    inner.finish();
  }

  /// A key that another one replaces may not stand beside it, unless the other was given later, on the command line.
  void refuse_rivals(const Value::Entry& entry, const std::string& path, const KeyInfo& info) {
    const auto* rival = info.not_beside.empty() ? nullptr : section_->find(info.not_beside);
    if (rival == nullptr || rival->value.kind == Value::Kind::nothing) return;
    if (entry.position.override_index < rival->position.override_index) return;
    refuse(entry.position, path,
           "does not stand beside " + rival->key + ", which takes its place; leave one of them out");
  }

  // The functions below return whether the value could be read; if not, the member keeps what it had.

  template <class T>
  bool read(const Value& value, const std::string& path, T& member, const KeyInfo& info) {
    if constexpr (Optional<T>) {
      return read_optional(value, path, member, info);
    } else if constexpr (List<T>) {
      return read_list(value, path, member, info);
    } else {
      return read_scalar(value, path, member, info);
    }
  }

  template <class T>
  bool read_optional(const Value& value, const std::string& path, std::optional<T>& member, const KeyInfo& info) {
    T inner{};
    if (value.kind == Value::Kind::nothing) {
      member.reset();
    } else if (read(value, path, inner, info)) {
      member = std::move(inner);
    } else {
      return false;
    }
    return true;
  }

  template <class T>
  bool read_list(const Value& value, const std::string& path, std::vector<T>& member, const KeyInfo& info) {
    if (value.kind == Value::Kind::mapping || value.kind == Value::Kind::nothing) {
      return refuse_value<std::vector<T>>(value, path, info);
    }
    const std::vector<Value> alone{value};
    const std::vector<Value>& items = value.kind == Value::Kind::scalar ? alone : value.items;
    std::vector<T> list(items.size());
    bool is_read = true;
    for (std::size_t i = 0; i < items.size(); ++i) is_read = read_scalar(items[i], path, list[i], info) && is_read;
    if (is_read) member = std::move(list);
    return is_read;
  }

  template <class T, std::size_t N>
  bool read_list(const Value& value, const std::string& path, std::array<T, N>& member, const KeyInfo& info) {
    if (value.kind != Value::Kind::list || value.items.size() != N) {
      const bool is_list = value.kind == Value::Kind::list;
      const std::string count = "has " + std::to_string(value.items.size()) + " entries";
      return refuse(
          value.position, path,
          (is_list ? count : "is " + description(value)) + ", expected " + expected_text<std::array<T, N>>(info.range));
    }
    std::array<T, N> list{};
    bool is_read = true;
    for (std::size_t i = 0; i < N; ++i) is_read = read_scalar(value.items[i], path, list[i], info) && is_read;
    if (is_read) member = list;
    return is_read;
  }

  template <class T>
  bool read_scalar(const Value& value, const std::string& path, T& member, const KeyInfo& info) {
    constexpr bool is_bare = std::is_arithmetic_v<T>;
    if (value.kind != Value::Kind::scalar || (is_bare && value.quoted)) return refuse_value<T>(value, path, info);
    const auto parsed = Scalar<T>::parse(value.text);
    if (!parsed) return refuse_text<T>(value, path, info);
    const auto number = number_of(*parsed);
    if (number && !info.range.contains(*number)) return refuse_value<T>(value, path, info);
    member = *parsed;
    return true;
  }

  template <class T>
  bool refuse_value(const Value& value, const std::string& path, const KeyInfo& info) {
    return refuse(value.position, path, "is " + description(value) + ", expected " + expected_text<T>(info.range));
  }

  template <class T>
  bool refuse_text(const Value& value, const std::string& path, const KeyInfo& info) {
    if constexpr (Enumeration<T>) {
      return refuse(value.position, path, wrong_choice_text(value, Scalar<T>::names(), info));
    } else if (std::is_same_v<T, std::int32_t> && Scalar<std::uint64_t>::parse(value.text)) {
      return refuse(value.position, path, too_large_text(value.text));
    } else {
      return refuse_value<T>(value, path, info);
    }
  }

  Reading& reading_;
  const Value* section_;
  Position position_;
  std::string path_;
  std::vector<std::string> known_;
};

}  // namespace penstock::config
