// SPDX-License-Identifier: Apache-2.0
//
// The reading of any described options struct from a YAML file: decks, hardware files.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/broken_rule.hpp"
#include "config/document.hpp"
#include "config/section.hpp"

namespace penstock::config {

/// What a kind of file is called in messages.
struct FileKind {
  std::string_view name;         ///< "deck"
  std::string_view entry;        ///< of its outermost level: "section"
  std::string_view when_empty;   ///< what to do about an empty one
  std::string_view expectation;  ///< what it should hold: "sections such as model:, data:"
};

/// The bytes of a file of options, at most one more than `largest_document`.
/// @throws Error bad_input, with the system's reason, if it cannot be read.
std::string read_options_text(const std::string& path, const FileKind& kind);

/// The paths of all keys of a described struct, those of sections included.
class KeyPaths {
 public:
  explicit KeyPaths(std::vector<std::string>& paths, std::string parent = {})
      : paths_{paths}, parent_{std::move(parent)} {}

  template <class T>
  void operator()(std::string_view key, T& member, const KeyInfo&) {
    const std::string path = parent_.empty() ? std::string{key} : parent_ + "." + std::string{key};
    paths_.push_back(path);
    if constexpr (Described<T>) {
      KeyPaths inner{paths_, path};
      describe(inner, member);
    }
  }

 private:
  std::vector<std::string>& paths_;
  std::string parent_;
};

/// One text on its way to an options struct. All faults are gathered: of the syntax, of single keys, of rules.
class OptionsFile {
 public:
  /// @param prefix what each override begins with before the path of its key, "" or "hardware."
  OptionsFile(std::string_view text, const FileKind& kind, const std::vector<std::string>& overrides,
              std::string_view prefix = {});

  /// Fills the struct; what cannot be read keeps its default.
  template <class Options>
  Options read() {
    Options options;
    if (!is_mapping_) return options;
    Options described;
    KeyPaths paths{reading_.known_paths};
    describe(paths, described);
    SectionReader reader{reading_, &root_, root_.position, ""};
    describe(reader, options);
    reader.finish();
    return options;
  }

  /// Whether the value of `key` is from the text, or from one of the overrides. Neither where it was left out.
  bool is_from_text(std::string_view key) const;
  bool is_from_override(std::string_view key) const;

  /// Adds broken rules, each at the place of its keys, unless one of these is faulty already.
  void add(const std::vector<BrokenRule>& rules);

  /// A line for each rule, which is no fault, at the place of its keys: `file:line:column: key: reason`.
  std::vector<std::string> notes(const std::vector<BrokenRule>& rules, const std::string& file,
                                 const std::vector<std::string>& overrides) const;

  /// @throws Error bad_input with a line for every fault: `file:line:column: key: reason`.
  void throw_faults(const std::string& file, const std::vector<std::string>& overrides) const;

 private:
  bool is_mapping(const FileKind& kind);

  Reading reading_;
  Value root_;
  bool is_mapping_ = false;
};

}  // namespace penstock::config
