// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>

#include "base/units.hpp"
#include "device/device.hpp"

namespace penstock {

/// The producing side of an Event: who holds it decides when, and how, the event completes.
///
/// Move-only, so that an event has one producer. A Completion that dies undecided fails its event: nobody waits for
/// ever for work that was dropped. Any thread may decide; what the producer wrote before is visible to who sees the
/// event complete.
class Completion {
 public:
  Completion();
  Completion(Completion&&) noexcept = default;
  Completion& operator=(Completion&&) noexcept;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion();

  Event event() const;
  /// The work ran from `started` until now. @pre neither succeed nor fail was called.
  void succeed(Seconds started);
  /// The work ended now with `failure`, which waiting rethrows. @pre neither succeed nor fail was called, failure is
  /// not null.
  void fail(std::exception_ptr failure, Seconds started);
  void fail(std::exception_ptr failure) { fail(std::move(failure), now()); }

 private:
  class State;
  void give_up() noexcept;
  std::shared_ptr<State> state_;
};

}  // namespace penstock
