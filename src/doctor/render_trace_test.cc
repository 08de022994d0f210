#include "doctor/render_trace.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "doctor/report_samples.h"
#include "probe/trace_format.h"

namespace bedplate::doctor {
namespace {

using nlohmann::json;

constexpr auto kind(probe::EventKind k) { return static_cast<std::uint16_t>(k); }

std::vector<json> events_of(const json& trace, std::string_view phase) {
  std::vector<json> found;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

// The first slice that neither lies inside nor after the one before it on its track; empty: all
// nest.
std::string misnested(const json& trace) {
  std::map<std::pair<int, int>, std::vector<json>> tracks;
  for (const auto& event : events_of(trace, "X"))
    tracks[{event.at("pid"), event.at("tid")}].push_back(event);
  for (auto& [track, slices] : tracks) {
    std::stable_sort(slices.begin(), slices.end(), [](const json& a, const json& b) {
      return a.at("ts") != b.at("ts") ? a.at("ts") < b.at("ts") : a.at("dur") > b.at("dur");
    });
    std::vector<double> ends;
    for (const auto& slice : slices) {
      const double start = slice.at("ts");
      const double end = start + slice.at("dur").get<double>();
      while (!ends.empty() && ends.back() <= start + 1e-6) ends.pop_back();
      if (!ends.empty() && end > ends.back() + 1e-3) return slice.dump();
      ends.push_back(end);
    }
  }
  return {};
}

TEST(RenderTrace, ParsesAndNestsForEverySample) {
  for (const auto& [name, report] : sample_reports()) {
    const json trace = json::parse(render_trace(report, sample_run(200, 20 * kSecond)));
    EXPECT_EQ(misnested(trace), "") << name;
    for (const auto& event : trace.at("traceEvents")) {
      for (const auto key : {"ph", "pid", "tid", "ts", "name"})
        EXPECT_TRUE(event.contains(key)) << event.dump();
      EXPECT_GE(event.at("ts").get<double>(), 0);
    }
  }
}

TEST(RenderTrace, HasATrackARankWithAllItsSteps) {
  const json trace =
      json::parse(render_trace(sample_report("full"), sample_run(200, 20 * kSecond)));
  std::map<int, int> steps;
  double phases = 0;
  double all = 0;
  for (const auto& slice : events_of(trace, "X")) {
    if (slice.at("cat") == "step") ++steps[slice.at("pid")], all += slice.at("dur").get<double>();
    if (slice.at("cat") == "phase") phases += slice.at("dur").get<double>();
  }
  EXPECT_EQ(steps, (std::map<int, int>{{4242, 200}, {4243, 200}}));
  EXPECT_NEAR(phases, all, 1);
  std::map<int, std::string> names;
  for (const auto& event : events_of(trace, "M")) {
    if (event.at("name") == "process_name") names[event.at("pid")] = event.at("args").at("name");
  }
  EXPECT_EQ(names[0], "machine");
  EXPECT_EQ(names[4242], "rank 0 python");
}

TEST(RenderTrace, CountersFollowTheSeries) {
  const json trace = json::parse(render_trace({}, sample_run(200, 20 * kSecond)));
  double highest = 0;
  std::set<std::string> names;
  for (const auto& event : events_of(trace, "C")) {
    names.insert(event.at("name"));
    if (event.at("name") == "CPU quota throttles (%)")
      highest = std::max(highest, event.at("args").at("%").get<double>());
  }
  EXPECT_NEAR(highest, 90, 12);
  EXPECT_TRUE(names.contains("CPU pressure (%)"));
  EXPECT_TRUE(names.contains("CPU, the job (cores)"));
  EXPECT_TRUE(names.contains("disk reads (MiB/s)"));
}

TEST(RenderTrace, WhatOverlapsGetsATrackOfItsOwn) {
  probe::RunData run;
  run.notes = {{7, 0, "op_name", R"({"id": 3, "name": "all_reduce"})"},
               {7, 0, "op_name", "not json"}};
  run.events[7] = {{0, 100'000, kind(probe::EventKind::kBackward), 9, 0},
                   {50'000, 100'000, kind(probe::EventKind::kCollective), 9, 3 | 1 << 8 | 5 << 16},
                   {60'000, 10'000, kind(probe::EventKind::kGc), 9, 2}};
  const json trace = json::parse(render_trace({}, run));
  EXPECT_EQ(misnested(trace), "");
  std::map<std::string, int> track;
  for (const auto& slice : events_of(trace, "X")) track[slice.at("name")] = slice.at("tid");
  EXPECT_EQ(track.size(), 3U);
  EXPECT_NE(track.at("backward"), track.at("all_reduce (async)"));
  EXPECT_EQ(track.at("backward"), track.at("Python GC"));
}

TEST(RenderTrace, NestsWhateverTheEventsAre) {
  std::uint64_t state = 20'261;  // a fixed seed: splitmix64
  const auto next = [&](std::uint64_t below) {
    state += 0x9E3779B97F4A7C15;
    std::uint64_t z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (z ^ z >> 31) % below;
  };
  probe::RunData run;
  for (int i = 0; i < 5000; ++i) {
    run.events[7].push_back({static_cast<Nanos>(next(1'000'000'000)),
                             static_cast<Nanos>(next(50'000'000)),
                             static_cast<std::uint16_t>(next(21)),
                             static_cast<std::uint32_t>(next(3)), next(1ULL << 60)});
  }
  EXPECT_EQ(misnested(json::parse(render_trace({}, run))), "");
}

TEST(RenderTrace, WritesALongRunInPieces) {
  std::size_t largest = 0;
  std::size_t pieces = 0;
  write_trace(sample_report("full"), sample_run(50'000, 2500 * kSecond),
              [&](std::string_view piece) {
                largest = std::max(largest, piece.size());
                ++pieces;
              });
  EXPECT_GT(pieces, 100U);
  EXPECT_LT(largest, 128U * 1024);
}

}  // namespace
}  // namespace bedplate::doctor
