// SPDX-License-Identifier: Apache-2.0
#include "trace/draw.hpp"

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trace/chrome.hpp"
#include "trace/example.hpp"

namespace penstock {
namespace {

using testing::gpipe_timeline;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream{text};
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(DrawText, DrawsToScale) {
  // 9 units in 45 columns (55 less the rank's name): a forward has 5, a backward 10.
  const auto lines = lines_of(draw_text(gpipe_timeline(2, 2), 55));

  EXPECT_EQ(lines[0], "rank 0    F0-- F1-- ...............B0------- B1------- ");
  EXPECT_EQ(lines[1], "rank 1    .....F0-- F1-- B0------- B1------- ..........");
  EXPECT_THAT(lines[2], HasSubstr("bubble 33.3 %"));
}

TEST(DrawText, FitsEightRanksAndEightMicroBatchesIntoAHundredColumns) {
  const auto lines = lines_of(draw_text(gpipe_timeline(8, 8), 100));

  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(lines[static_cast<std::size_t>(rank)].size(), 100U);
  EXPECT_THAT(lines[0], HasSubstr("F0F1F2F3"));
}

TEST(DrawText, ShortensLabelsThatDoNotFit) {
  const auto lines = lines_of(draw_text(gpipe_timeline(1, 40), 70));

  EXPECT_EQ(lines[0].size(), 70U);
  EXPECT_THAT(lines[0], Not(HasSubstr("F10")));
}

TEST(Drawings, OfPricesSpeakOfUnitsNotOfSeconds) {
  // 9 units in 45 columns.
  const std::string text = draw_text(gpipe_timeline(2, 2), 55, TimeUnit::price);
  const std::string svg = draw_svg(gpipe_timeline(2, 2), TimeUnit::price);

  EXPECT_THAT(text, HasSubstr(": 9 units in all, 0.2 units a column"));
  EXPECT_THAT(svg, HasSubstr("time [units]"));
  EXPECT_THAT(svg, HasSubstr(" units</title>"));
}

TEST(DrawText, OfNothingIsIdle) {
  EXPECT_THAT(draw_text({"none", 1, {}, {}}, 50), HasSubstr("rank 0    ........................................\n"));
}

TEST(DrawSvg, HasABoxPerSpanAndARowPerLaneThatIsUsed) {
  auto timeline = gpipe_timeline(4, 8);
  timeline.spans.push_back(testing::message(0, Op::send_forward, 1, 0, 1.0, 1.5));

  const std::string svg = draw_svg(timeline);

  EXPECT_EQ(count_of(svg, "<title>"), timeline.spans.size());
  EXPECT_EQ(count_of(svg, "fill-opacity=\"0.05\""), 4U);   // compute lanes
  EXPECT_EQ(count_of(svg, "fill-opacity=\"0.025\""), 1U);  // rank 0's messages
  EXPECT_THAT(svg, HasSubstr("bubble 27.27 %"));
}

TEST(DrawSvg, LeavesOutWhatTakesNoTime) {
  auto timeline = gpipe_timeline(2, 2);
  timeline.spans.push_back(testing::message(0, Op::send_forward, 1, 0, 1.0, 1.0));

  const std::string svg = draw_svg(timeline);

  EXPECT_EQ(count_of(svg, "<title>"), timeline.spans.size() - 1);
  EXPECT_EQ(count_of(svg, "fill-opacity=\"0.025\""), 0U);
  EXPECT_THAT(svg, Not(HasSubstr("SEND_F")));
}

TEST(DrawSvg, IsAsWideAsNumbersOfMicroBatchesNeed) {
  const std::string svg = draw_svg(gpipe_timeline(8, 32));

  for (int micro_batch = 0; micro_batch < 32; ++micro_batch) {
    // In a forward and a backward on each of 8 ranks; beyond those on the axis.
    EXPECT_GE(count_of(svg, ">" + std::to_string(micro_batch) + "</text>"), 16U) << micro_batch;
  }
}

TEST(DrawSvg, TellsWhatAllRanksDoTogetherFromTheirStages) {
  Timeline timeline{"shared", 2, {}, {}};
  for (const std::int32_t rank : {0, 1}) {
    for (const auto& [op, start] :
         {std::pair{Op::embed_forward, 0.0}, {Op::forward, 1.0}, {Op::vocabulary_forward, 3.0}}) {
      timeline.spans.push_back(testing::span(rank, op, 0, start, start + 1));
      if (is_collective(op)) timeline.spans.back().action.stage = Stage{2 + rank};
    }
  }

  const std::string svg = draw_svg(timeline);

  EXPECT_EQ(count_of(svg, "<title>"), 6U);
  EXPECT_THAT(svg, HasSubstr("EF embedding"));
  EXPECT_THAT(svg, HasSubstr("VF output layer"));
  EXPECT_THAT(svg, Not(HasSubstr("stages of a rank")));
}

TEST(DrawSvg, PalesTheEndOfWhatWaited) {
  auto timeline = gpipe_timeline(2, 2);
  timeline.spans[0].waited = {0.25};

  const std::string svg = draw_svg(timeline);

  EXPECT_EQ(count_of(svg, "pointer-events=\"none\""), 1U);
  EXPECT_THAT(svg, HasSubstr("0.000 to 1.000 s, 0.250 of it waiting"));
  EXPECT_THAT(svg, HasSubstr("pale end"));
  EXPECT_THAT(draw_svg(gpipe_timeline(2, 2)), Not(HasSubstr("pale end")));
}

TEST(DrawSvg, EscapesTheNameOfTheSchedule) {
  auto timeline = gpipe_timeline(1, 1);
  timeline.schedule = "a<b & \"c\"\n";

  const std::string svg = draw_svg(timeline);

  EXPECT_THAT(svg, HasSubstr("a&lt;b &amp; &quot;c&quot; ,"));
}

TEST(DrawSvg, NamesTheUnitOfTime) {
  EXPECT_THAT(draw_svg(gpipe_timeline(2, 2, 1.0)), HasSubstr("time [s]"));
  EXPECT_THAT(draw_svg(gpipe_timeline(2, 2, 1e-3)), HasSubstr("time [ms]"));
  EXPECT_THAT(draw_svg(gpipe_timeline(2, 2, 1e-6)), HasSubstr("time [us]"));
}

TEST(DrawSvg, DrawsAnEmptyTimeline) {
  EXPECT_THAT(draw_svg({"none", 1, {}, {}}), HasSubstr("</svg>"));
}

TEST(ChromeTrace, IsJsonWithAnEventPerSpanInMicroseconds) {
  auto timeline = gpipe_timeline(2, 2, 1e-3);
  timeline.spans.push_back(testing::message(0, Op::send_forward, 1, 1, 2e-3, 3e-3));
  timeline.schedule = "quote \" and bad byte \xFF";

  const auto document = nlohmann::json::parse(chrome_trace(timeline));

  const auto& events = document["traceEvents"];
  const auto send =
      std::find_if(events.begin(), events.end(), [](const auto& event) { return event["name"] == "0SEND_F1"; });
  ASSERT_NE(send, events.end());
  EXPECT_EQ((*send)["ph"], "X");
  EXPECT_EQ((*send)["pid"], 1);
  EXPECT_EQ((*send)["tid"], 1 + static_cast<int>(Lane::send));
  EXPECT_EQ((*send)["ts"], 2000);
  EXPECT_EQ((*send)["dur"], 1000);
  EXPECT_EQ((*send)["args"]["peer"], 1);
  EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const auto& event) { return event["ph"] == "X"; }),
            static_cast<std::ptrdiff_t>(timeline.spans.size()));
  EXPECT_EQ(events[0]["args"]["name"], "rank 0");
  EXPECT_EQ(events.back()["args"]["bytes in use"], 1 << 20);
}

TEST(ChromeTrace, ShowsInsideAnActionWhatItWaited) {
  auto timeline = gpipe_timeline(1, 1, 1e-3);
  timeline.spans[1].waited = {0.5e-3};  // of B, from 1 to 3 ms

  const auto document = nlohmann::json::parse(chrome_trace(timeline));

  const auto& events = document["traceEvents"];
  const auto waiting =
      std::find_if(events.begin(), events.end(), [](const auto& event) { return event["name"] == "waiting"; });
  ASSERT_NE(waiting, events.end());
  const auto& action = *(waiting - 1);
  EXPECT_EQ(action["name"], "0B0");
  EXPECT_EQ(action["args"]["waited_us"], 500);
  EXPECT_EQ((*waiting)["tid"], action["tid"]);
  EXPECT_EQ((*waiting)["ts"], 2500);
  EXPECT_EQ((*waiting)["dur"], 500);
}

TEST(ChromeTrace, HasNoThreadWhoseSpansOverlap) {
  Timeline timeline{"messages", 2, {}, {}};
  for (const int i : {0, 1, 2, 3, 4, 5, 6, 7}) {
    // Receives are posted early: several wait at once, and end in another order.
    timeline.spans.push_back(
        testing::message(0, Op::receive_forward, 1, i, 1e-4 * i, 1e-4 * (i % 2 == 0 ? 20 : i + 2)));
    // Neighbours to the last bit, at times that no decimal fraction gives.
    timeline.spans.push_back(testing::message(1, Op::send_forward, 0, i, i / 3e4, (i + 1) / 3e4));
  }
  // One without length may lie in the next, but not stand before it.
  timeline.spans.push_back(testing::message(1, Op::send_forward, 0, 8, 1e-2, 1e-2));
  timeline.spans.push_back(testing::message(1, Op::send_forward, 0, 9, 1e-2, 2e-2));

  const auto document = nlohmann::json::parse(chrome_trace(timeline));

  struct Interval {
    std::int64_t begin = -1;
    std::int64_t end = -1;
  };
  std::map<std::pair<int, int>, Interval> latest;  // by rank and thread
  for (const auto& event : document["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ASSERT_TRUE(event["ts"].is_number_integer() && event["dur"].is_number_integer());
    const auto begin = event["ts"].get<std::int64_t>();
    const Interval own{begin, begin + event["dur"].get<std::int64_t>()};
    Interval& before = latest[{event["pid"], event["tid"]}];
    EXPECT_TRUE(own.begin >= before.begin && (own.begin >= before.end || own.end <= before.end)) << event;
    if (own.begin >= before.end) before = own;
  }
  EXPECT_EQ(std::count_if(latest.begin(), latest.end(), [](const auto& thread) { return thread.first.first == 2; }), 1);
  EXPECT_GT(latest.size(), 4U);
  std::set<int> threads;
  for (const auto& thread : latest) EXPECT_TRUE(threads.insert(thread.first.second).second) << "of two processes";
}

TEST(ChromeTrace, NamesSlicesWhereThereAreSome) {
  auto timeline = gpipe_timeline(1, 1);
  timeline.spans[1].action.slice = Slice{1};

  EXPECT_THAT(chrome_trace(timeline), HasSubstr("\"0B0.1\""));
}

}  // namespace
}  // namespace penstock
