// SPDX-License-Identifier: Apache-2.0
//
// V6: a walk over each list with the buffers that are live.
#include <algorithm>
#include <map>
#include <string>

#include "schedule/semantics.hpp"
#include "schedule/validator_rules.hpp"

namespace penstock::rules {

namespace {

class BufferWalk {
 public:
  BufferWalk(const Schedule& schedule, Findings& findings) : schedule_{schedule}, findings_{findings} {}

  void add(const Placed& at) {
    for (const SymbolicBuffer& buffer : takes(schedule_, at.node())) take(at, buffer);
    const auto used = uses(schedule_, at.node());
    for (const SymbolicBuffer& buffer : used) use(at, buffer);
    for (const SymbolicBuffer& buffer : frees(schedule_, at.node())) {
      const bool is_reported = std::find(used.begin(), used.end(), buffer) != used.end();
      free(at, buffer, is_reported);
    }
  }

  void end() {
    for (const auto& [buffer, taker] : live_) {
      findings_.add(Rule::buffer, taker, "takes {}, which no action frees", text(buffer));
    }
    live_.clear();
    freed_.clear();
  }

 private:
  void take(const Placed& at, const SymbolicBuffer& buffer) {
    const auto [place, is_new] = live_.emplace(buffer, at);
    if (is_new) return;
    findings_.add(Rule::buffer, at, "takes {}, which `{}` ({}) has taken and nothing has freed", text(buffer),
                  findings_.text(place->second.action), findings_.place(place->second.rank, place->second.position));
  }

  void use(const Placed& at, const SymbolicBuffer& buffer) {
    if (is_persistent(schedule_, buffer.kind) || live_.count(buffer) > 0) return;
    findings_.add(Rule::buffer, at, "uses {}, which {}", text(buffer), why_not_live(buffer));
  }

  void free(const Placed& at, const SymbolicBuffer& buffer, bool is_reported) {
    if (live_.erase(buffer) > 0) {
      freed_.insert_or_assign(buffer, at);
    } else if (!is_reported) {
      findings_.add(Rule::buffer, at, "frees {}, which {}", text(buffer), why_not_live(buffer));
    }
  }

  std::string why_not_live(const SymbolicBuffer& buffer) const {
    const auto freed = freed_.find(buffer);
    if (freed == freed_.end()) return "no action before it takes";
    return fmt::format("`{}` ({}) has freed", findings_.text(freed->second.action),
                       findings_.place(freed->second.rank, freed->second.position));
  }

  std::string text(const SymbolicBuffer& buffer) const {
    const std::string slice = schedule_.shape.slices > 1 ? fmt::format(", slice {}", buffer.slice) : "";
    return fmt::format("the {} of stage {}, micro-batch {}{}", name_of(buffer.kind), buffer.stage, buffer.micro_batch,
                       slice);
  }

  const Schedule& schedule_;
  Findings& findings_;
  std::map<SymbolicBuffer, Placed> live_;   // with who took it
  std::map<SymbolicBuffer, Placed> freed_;  // with who freed it
};

}  // namespace

void check_buffers(const Schedule& schedule, Findings& findings) {
  BufferWalk walk{schedule, findings};
  Rank rank{0};
  visit_placed(schedule, [&](const Placed& at) {
    if (at.rank != rank) walk.end();
    rank = at.rank;
    walk.add(at);
  });
  walk.end();
}

}  // namespace penstock::rules
