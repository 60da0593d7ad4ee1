// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/example.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/write.hpp"
#include "comm/communicator.hpp"

namespace penstock {
namespace {

using namespace test;

/// Starts a process that writes the checkpoint and is killed after `delay`. Returns whether it had finished before.
bool write_and_kill(const CheckpointFolder& folder, const CheckpointContents& contents,
                    const std::vector<SavedPiece>& pieces, std::chrono::microseconds delay) {
  const pid_t child = fork();
  if (child == 0) {
    write_checkpoint(Communicator::self(), folder, contents, pieces);
    _exit(0);
  }
  std::this_thread::sleep_for(delay);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status);
}

TEST(KilledWrite, LeavesTheCheckpointBeforeWhateverTheMoment) {
  const TemporaryDirectory folder;
  const auto before = example_contents(1);
  const auto after = example_contents(2);
  const auto pieces_after = everything(after);
  write_checkpoint(Communicator::self(), {folder.path().string(), 1}, before, everything(before).pieces);

  int killed = 0;
  for (int moment = 0; moment < 20; ++moment) {
    const std::chrono::microseconds delay{500 + 1500 * moment};
    const bool finished = write_and_kill({folder.path().string(), 2}, after, pieces_after.pieces, delay);
    killed += finished ? 0 : 1;

    const auto latest = find_latest(Communicator::self(), folder.path().string());

    const bool is_new = latest == folder / checkpoint_name(2);
    EXPECT_TRUE(is_new || latest == folder / checkpoint_name(1)) << "killed after " << delay.count() << " us";
    EXPECT_TRUE(is_new || !finished);
    std::filesystem::remove(folder / checkpoint_name(2));
  }
  EXPECT_GT(killed, 0);
}

TEST(KilledWrite, IsNoCheckpointBeforeItsFileIsRenamed) {
  const TemporaryDirectory folder;
  const auto before = example_contents(1);
  const auto after = example_contents(2);
  write_checkpoint(Communicator::self(), {folder.path().string(), 1}, before, everything(before).pieces);
  const auto pieces = everything(after);

  EXPECT_EXIT(write_checkpoint(Communicator::self(), {folder.path().string(), 2}, after, pieces.pieces, {},
                               [](std::int64_t step) { std::raise(step == 2 ? SIGKILL : SIGTERM); }),
              ::testing::KilledBySignal(SIGKILL), "");

  EXPECT_TRUE(std::filesystem::exists(folder / (checkpoint_name(2) + ".partial")));
  EXPECT_EQ(find_latest(Communicator::self(), folder.path().string()), folder / checkpoint_name(1));
}

}  // namespace
}  // namespace penstock
