// SPDX-License-Identifier: Apache-2.0
//
// The plotting scripts on files that they know, and on files that are none.
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_directory.hpp"
#include "trace/example.hpp"
#include "trace/trace_file.hpp"

namespace penstock {
namespace {

using ::testing::HasSubstr;

class Scripts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("/usr/bin/python3 -c 'import h5py, matplotlib' 2>/dev/null") != 0)
      GTEST_SKIP() << "no h5py or matplotlib";
  }
  /// Whether the script succeeds; what it prints goes to the file "said".
  bool runs(const std::string& command) const {
    return std::system(("/usr/bin/python3 scripts/" + command + " > " + (folder_ / "said") + " 2>&1").c_str()) == 0;
  }
  std::string said() const { return folder_.read("said"); }
  const test::TemporaryDirectory folder_;
};

constexpr const char* header =
    "step,tokens,loss,grad_norm,learning_rate,step_seconds,tokens_per_second,bubble_fraction,peak_device_bytes,"
    "validation_loss,skipped\n";

TEST_F(Scripts, PlotTraceDrawsAStep) {
  auto timeline = testing::gpipe_timeline(2, 3);
  timeline.spans[0].waited = {0.25};
  write_trace(folder_ / "trace.h5", timeline);

  EXPECT_TRUE(runs("plot_trace.py --step 0 " + (folder_ / "trace.h5"))) << said();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "trace.png"));
}

TEST_F(Scripts, PlotTraceTakesTheFolderOfARun) {
  write_trace(folder_ / "trace.h5", testing::gpipe_timeline(2, 3));

  EXPECT_TRUE(runs("plot_trace.py " + folder_.path().string())) << said();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "trace.png"));
  EXPECT_FALSE(runs("plot_trace.py " + (folder_ / "none")));
  EXPECT_THAT(said(), HasSubstr("none: no such file; give a run's folder"));
}

TEST_F(Scripts, PlotTraceNamesWhatItCannotDraw) {
  write_trace(folder_ / "trace.h5", testing::gpipe_timeline(2, 3));
  folder_.write("text.h5", "text");

  EXPECT_FALSE(runs("plot_trace.py --step 5 " + (folder_ / "trace.h5")));
  EXPECT_THAT(said(), HasSubstr("no step 5; the trace holds 0 to 0"));
  EXPECT_FALSE(runs("plot_trace.py " + (folder_ / "text.h5")));
  EXPECT_THAT(said(), HasSubstr("text.h5"));
}

TEST_F(Scripts, PlotMetricsDrawsARunThatIsStillWriting) {
  folder_.write("metrics.csv", std::string{header} + "1,64,5.5,1.25,0.001,0.5,128,0.2,1000,,0\n" +
                                   "2,128,5.25,1.5,0.002,0.5,128,0.2,1000,5.375,0\n3,192,5.1,1.");

  EXPECT_TRUE(runs("plot_metrics.py " + folder_.path().string())) << said();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "metrics.png"));
}

TEST_F(Scripts, PlotMetricsOfSeveralRunsLeavesTheirOwnPictures) {
  const std::string step = std::string{header} + "1,64,5.5,1.25,0.001,0.5,128,0.2,1000,,0\n";
  for (const char* run : {"a", "b"}) {
    std::filesystem::create_directory(folder_ / run);
    folder_.write(std::string{run} + "/metrics.csv", step);
  }
  const std::string script = std::filesystem::absolute("scripts/plot_metrics.py").string();

  const std::string command = "cd " + folder_.path().string() + " && /usr/bin/python3 " + script + " a b > said 2>&1";

  EXPECT_EQ(std::system(command.c_str()), 0) << said();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "metrics.png"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/metrics.png"));
}

TEST_F(Scripts, PlotMetricsNamesTheLineThatIsWrong) {
  folder_.write("metrics.csv", std::string{header} + "1,64,high,1.25,0.001,0.5,128,0.2,1000,,0\n");

  EXPECT_FALSE(runs("plot_metrics.py " + (folder_ / "metrics.csv")));
  EXPECT_THAT(said(), HasSubstr("metrics.csv:2: loss is 'high'"));
}

}  // namespace
}  // namespace penstock
