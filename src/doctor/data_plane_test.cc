#include "doctor/data_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "doctor/judge.h"
#include "doctor/render_html.h"
#include "doctor/render_json.h"
#include "doctor/render_text.h"
#include "doctor/run_builder.h"

namespace bedplate::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kLine[] =
    R"({"url":"s3://corpus/train/","cache":"/nvme/cache:2GB","bytes":1000000000,"samples":5000,)"
    R"("trouble":"","remote_p99_ns":45000000})";

RunBuilder cached(int ranks = 1) {
  auto run = RunBuilder::healthy(ranks, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const int pid = RunBuilder::rank_pid(rank);
    const std::string subject = proc(pid);
    run.note(pid, "loader_data", kLine);
    run.counter(subject, "trace.fetches", 10)
        .counter(subject, "trace.data_samples", 1000)
        .counter(subject, "trace.data_bytes", 1e6)
        .counter(subject, "trace.data_make_ns", 0.75e9)
        .counter(subject, "trace.data_read_ns", 0.5e9)
        .counter(subject, "trace.data_decode_ns", 0.2e9)
        .counter(subject, "trace.data_idle_ns", 0.25e9)
        .counter(subject, "trace.data_wait_ns", 0.01e9)
        .counter(subject, "trace.cache_hits", 90)
        .counter(subject, "trace.cache_hit_bytes", 900e3)
        .counter(subject, "trace.cache_memory_bytes", 300e3)
        .counter(subject, "trace.cache_misses", 10)
        .counter(subject, "trace.cache_origin_bytes", 100e3)
        .counter(subject, "trace.remote_reads", 2)
        .counter(subject, "trace.remote_ns", 40e6)
        .counter(subject, "trace.remote_bytes", 100e3);
  }
  return run;
}

TEST(DataPlaneTest, SaysWhatWasReadFromWhereAndWhoWaited) {
  const auto data = cached().build();
  const Report report = judge(data);
  ASSERT_EQ(report.data.size(), 1u);
  const DataPlane& one = report.data[0];
  EXPECT_EQ(one.rank, 0);
  EXPECT_EQ(one.samples, 20'000);
  EXPECT_EQ(one.hit_bytes, 18'000'000);
  EXPECT_EQ(one.remote_p99, 45 * kMillisecond);
  EXPECT_EQ(one.evictions, 0);
  const std::string text = render_text(report, data, {.columns = 400});
  EXPECT_THAT(text, HasSubstr("20 k samples, 19.1 MiB, in 200 batches, of s3://corpus/train/"));
  EXPECT_THAT(text, HasSubstr("/nvme/cache:2GB: 90 % of 19.1 MiB from it (5.72 MiB of that from "
                              "memory); 1.91 MiB from the origin in 200 blocks; 0 blocks evicted"));
  EXPECT_THAT(text, HasSubstr("a read takes 20 ms, 99 of 100 within 45 ms; 0 tried again"));
  EXPECT_THAT(text,
              HasSubstr("50 % of their time waiting for the store, 20 % decoding, 25 % waiting "
                        "for the loop, 5 % otherwise"));
  EXPECT_THAT(text, Not(HasSubstr("past it")));
  const auto json = nlohmann::json::parse(render_json(report));
  EXPECT_EQ(json["data"][0]["cache"]["misses"], 200);
  EXPECT_EQ(json["data"][0]["remote"]["mean_ms"], 20.0);
  EXPECT_EQ(json["data"][0]["threads"]["store_wait_s"], 10.0);
  EXPECT_THAT(render_html(report, data), HasSubstr("5.72 MiB of that from memory"));
}

TEST(DataPlaneTest, AJobWithoutBedplateDataHasNone) {
  const auto data = RunBuilder::healthy(2).build();
  const Report report = judge(data);
  EXPECT_TRUE(report.data.empty());
  EXPECT_THAT(render_text(report, data, {}), Not(HasSubstr("DATA")));
  EXPECT_THAT(render_html(report, data), Not(HasSubstr("<h2>Data")));
  EXPECT_EQ(nlohmann::json::parse(render_json(report))["data"], nlohmann::json::array());
}

TEST(DataPlaneTest, WithoutACacheOrARemoteStoreTheseAreNull) {
  auto run = RunBuilder::healthy(1, 0);
  run.note(100, "loader_data", R"({"url":"train/","cache":null,"bytes":7,"samples":1})");
  run.counter("proc/100", "trace.data_bytes", 10);
  const auto json = nlohmann::json::parse(render_json(judge(run.build())));
  EXPECT_TRUE(json["data"][0]["cache"].is_null());
  EXPECT_TRUE(json["data"][0]["remote"].is_null());
}

TEST(DataPlaneTest, AWindowInMemoryIsShownWhereThereIsNoCache) {
  auto run = cached();
  run.note(100, "loader_data", R"({"cache":null,"window":2147483648,"bytes":1000000000})");
  const auto data = run.build();
  const Report report = judge(data);
  EXPECT_THAT(render_text(report, data, {.columns = 200}),
              HasSubstr("window   2 GiB of memory: 90 % of 19.1 MiB from it; 1.91 MiB from"));
  const auto json = nlohmann::json::parse(render_json(report));
  EXPECT_TRUE(json["data"][0]["cache"]["cache"].is_null());
  EXPECT_EQ(json["data"][0]["cache"]["window_bytes"], 2147483648);
}

TEST(DataPlaneTest, WhyACacheIsPassedByIsSaid) {
  auto run = cached();
  run.note(100, "loader_data",
           R"({"cache":"/nvme/cache","bytes":1000000000,"trouble":"no space <on> it"})");
  run.counter("proc/100", "trace.cache_pass_throughs", 5);
  const auto data = run.build();
  const Report report = judge(data);
  EXPECT_THAT(render_text(report, data, {.columns = 200}),
              HasSubstr("100 reads went past the cache: no space <on> it"));
  EXPECT_THAT(render_html(report, data), HasSubstr("no space &lt;on&gt; it"));
}

TEST(DataPlaneTest, WhatWasCountedBeforeTheFirstSampleIsNotLost) {
  auto run = cached();
  run.series("proc/100", "trace.data_samples", probe::SeriesKind::kCounter,
             {{2 * kSecond, 500}, {4 * kSecond, 700}, {19 * kSecond, 700}});
  run.series("proc/100", "trace.data_bytes", probe::SeriesKind::kCounter, {{3 * kSecond, 77}});
  const auto data = run.build();
  const DataPlane whole = judge(data).data.at(0);
  EXPECT_EQ(whole.samples, 700);
  EXPECT_EQ(whole.bytes, 77);
  EXPECT_EQ(data_plane_of(RunView(data), 100, {3 * kSecond, 4 * kSecond})->samples, 100);
}

TEST(DataPlaneTest, ManyRanksAreToldTogether) {
  const auto data = cached(8).build();
  const Report report = judge(data);
  EXPECT_EQ(report.data.size(), 8u);
  const std::string text = render_text(report, data, {.columns = 400});
  EXPECT_THAT(text, HasSubstr("all        160 k samples"));
  EXPECT_THAT(text, HasSubstr("(954 MiB, 5 k samples)")) << "all ranks read one data set";
}

TEST(DataPlaneTest, NonsenseInNotesAndCountersIsNoCrash) {
  auto run = RunBuilder::healthy(1, 0);
  for (const char* line : {"", "[]", "{", R"({"url":5,"bytes":-7,"samples":"x","trouble":null})",
                           R"({"bytes":1e300,"cache":["a"]})"}) {
    run.note(100, "loader_data", line);
  }
  run.counter("proc/100", "trace.data_bytes", 9e17).counter("proc/100", "trace.data_make_ns", -5);
  const auto data = run.build();
  const Report report = judge(data);
  ASSERT_EQ(report.data.size(), 1u);
  EXPECT_EQ(report.data[0].set_bytes, 0);
  EXPECT_THAT(render_text(report, data, {}), HasSubstr("0 % of their time"));
}

}  // namespace
}  // namespace bedplate::doctor
