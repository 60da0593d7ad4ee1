// SPDX-License-Identifier: Apache-2.0
#include "device/joined.hpp"

#include <memory>

#include "base/error.hpp"
#include "device/completion.hpp"

namespace penstock {

Event joined(const Event& first, const Event& last) {
  require(first.state() && last.state(), "only queued work can be joined");
  const auto whole = std::make_shared<Completion>();
  // The callback lives in the state of `last`, which it must not keep alive.
  last.state()->on_complete([whole, first, last_state = std::weak_ptr{last.state()}] {
    const auto state = last_state.lock();
    const auto failure = state ? state->failure() : nullptr;
    if (failure) {
      whole->fail(failure, first.state()->started());
    } else {
      whole->succeed(first.state()->started());
    }
  });
  return whole->event();
}

}  // namespace penstock
