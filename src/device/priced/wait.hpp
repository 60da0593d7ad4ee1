// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.hpp"

namespace penstock {

/// Sleeps until now() has reached `deadline`, never less; at once if it has. Asleep all the while: what follows comes
/// later by the time that the system takes to wake a thread. Signals do not shorten it.
///
/// Modelled work ends at `now() + price`, with now() taken when everything that it waits for was seen complete. What
/// the machine added before is then part of the time that is measured, and not caught up with.
void wait_until(Seconds deadline);

}  // namespace penstock
