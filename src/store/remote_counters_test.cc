#include "store/remote_counters.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace bedplate::store {
namespace {

RemoteCounters of(std::initializer_list<Nanos> latencies) {
  const RemoteCounters before = remote_counters();
  for (const Nanos latency : latencies) count_remote_read({.latency = latency, .bytes = 1});
  RemoteCounters out = remote_counters();
  for (std::size_t i = 0; i < out.by_latency.size(); ++i) out.by_latency[i] -= before.by_latency[i];
  return out;
}

TEST(RemoteCountersTest, ALatencyIsAtMostAQuarterBelowWhatIsSaidOfIt) {
  for (Nanos latency = kMicrosecond; latency < 900 * kSecond; latency = latency * 11 / 10 + 1) {
    const Nanos said = of({latency}).latency_at(0.99);
    EXPECT_GE(said, latency);
    EXPECT_LE(said, latency * 5 / 4 + kMicrosecond) << latency;
  }
}

TEST(RemoteCountersTest, WhatIsBeyondAllClassesIsInTheOuterOnes) {
  EXPECT_GT(of({INT64_MAX / 8}).latency_at(0.5), 1000 * kSecond);
  EXPECT_LE(of({-5}).latency_at(0.5), 2 * kMicrosecond);
  EXPECT_EQ(RemoteCounters{}.latency_at(0.99), 0);
  EXPECT_EQ(RemoteCounters{}.mean_latency(), 0);
}

TEST(RemoteCountersTest, TheShareIsOfTheReads) {
  std::vector<Nanos> latencies(99, kMillisecond);
  const RemoteCounters before = remote_counters();
  for (const Nanos latency : latencies) count_remote_read({.latency = latency});
  count_remote_read({.latency = kSecond});
  RemoteCounters all = remote_counters();
  for (std::size_t i = 0; i < all.by_latency.size(); ++i) all.by_latency[i] -= before.by_latency[i];
  EXPECT_LT(all.latency_at(0.99), 2 * kMillisecond);
  EXPECT_GE(all.latency_at(0.995), kSecond);
}

TEST(RemoteCountersTest, ThreadsLoseNothingAndAChildBeginsAtZero) {
  const RemoteCounters before = remote_counters();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) count_remote_read({.latency = 10, .bytes = 3, .attempts = 2});
      count_remote_read({.bytes = 3, .end = RemoteRead::End::kFailed});
    });
  }
  threads.clear();
  const RemoteCounters after = remote_counters();
  EXPECT_EQ(after.reads - before.reads, 4004);
  EXPECT_EQ(after.bytes - before.bytes, 12'000);
  EXPECT_EQ(after.retries - before.retries, 4000);
  EXPECT_EQ(after.failed - before.failed, 4);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(remote_counters().reads == 0 ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace bedplate::store
