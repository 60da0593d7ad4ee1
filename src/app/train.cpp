// SPDX-License-Identifier: Apache-2.0
#include "app/commands.hpp"
#include "app/job.hpp"
#include "app/modelled.hpp"
#include "app/priced_run.hpp"
#include "app/training_run.hpp"
#include "app/with_mpi.hpp"
#include "base/counted.hpp"
#include "base/log.hpp"
#include "comm/agreement.hpp"
#include "comm/communicator.hpp"
#include "comm/environment.hpp"
#include "config/checks.hpp"
#include "config/hardware_file.hpp"
#include "config/listing.hpp"
#include "config/reader.hpp"

namespace penstock {
namespace {

/// Reads the deck on every rank, and refuses ranks that read another one or run another program.
NotedDeck read_deck_on_all_ranks(const TrainCommand& command, const Communicator& world) {
  auto noted = jointly(world, [&] { return read_noted_deck(command.deck, split_overrides(command.overrides).deck); });
  const auto own = fmt::format("version {}, deck hash {:016x}", program_version(), deck_hash(noted.deck));
  const auto all = world.all_gather(own);
  jointly(world, [&] {
    if (own == all.front()) return;
    fail(ExitCode::bad_input,
         "this rank has {}, rank 0 has {}: start the same program with the same deck and the same --set on all ranks",
         own, all.front());
  });
  return noted;
}

void refuse_resume(const TrainCommand& command) {
  if (command.resume == "none") return;
  fail(ExitCode::bad_input,
       "--resume {}: a run on the priced device trains nothing and has no checkpoints; leave it out", command.resume);
}

ExitCode run_priced(const TrainCommand& command, const Deck& deck, const Communicator& world) {
  const auto hardware =
      jointly(world, [&] { return hardware_of(deck, command.deck, split_overrides(command.overrides).hardware); });
  PricedRun run{deck, command.deck, hardware, world};
  return run.run();
}

ExitCode train_on_all_ranks(const TrainCommand& command, const Communicator& world) {
  const auto noted = read_deck_on_all_ranks(command, world);
  const Deck& deck = noted.deck;
  const bool is_priced = deck.device.kind == DeviceKind::priced;
  jointly(world, [&] {
    if (is_priced) return refuse_resume(command);
    refuse_what_cannot_run(deck);
    refuse_hardware_overrides(command.overrides);
    check_ranks(deck, world.size());
  });
  log::note("Penstock {}, {}, deck {}, run directory {}", program_version(), counted(world.size(), "rank"),
            command.deck, deck.output.directory);
  for (const auto& line : noted.notes) log::note("note: {}", line);
  if (is_priced) return run_priced(command, deck, world);
  TrainingRun run{deck, command.deck, world, command.resume};
  return run.run();
}

}  // namespace

ExitCode train(const TrainCommand& command, int* argc, char*** argv) {
  return with_mpi(argc, argv, [&](const Communicator& world) { return train_on_all_ranks(command, world); });
}

}  // namespace penstock
