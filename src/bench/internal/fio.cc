#include "bench/internal/fio.h"

#include <linux/io_uring.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <variant>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/text.h"
#include "os/process.h"
#include "os/unique_fd.h"

namespace bedplate::bench {
namespace {

constexpr Nanos kPatience = 60 * kSecond;  // beyond the length that was asked for
constexpr Nanos kVersionPatience = 10 * kSecond;

// Of `watch`, while a program runs: what goes on, how long it takes, and where in the whole it is.
struct Pace {
  const Watch& watch;
  std::string_view what;
  Nanos length = 0;
  Nanos longest = 0;
  double begun = 0;
  double done = 0;
};

struct Output {
  int exit_code = 0;
  std::string printed;
  std::string said;
};

os::UniqueFd memory_file(const char* name) {
  os::UniqueFd fd(::memfd_create(name, MFD_CLOEXEC));
  if (!fd) throw errno_error(errno, "cannot make room for the output of fio");
  return fd;
}

std::string content(const os::UniqueFd& fd) {
  std::string text;
  char piece[16384];
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(fd.get(), piece, sizeof piece, at);
    if (n <= 0) return text;
    text.append(piece, static_cast<std::size_t>(n));
    at += n;
  }
}

// Waits for the child; kills it when it takes too long or the watch says stop, and throws that.
os::Ended wait_for(os::Child& child, const Pace& pace) {
  constexpr Nanos kLook = 50 * kMillisecond;
  const Nanos begin = real_clock().now();
  std::optional<Error> why;
  while (true) {
    if (const auto ended = child.try_wait()) {
      if (why) throw *why;
      return *ended;
    }
    const Nanos length = real_clock().now() - begin;
    if (!why && pace.watch.stopped()) {
      why = Error(Code::kUnavailable, "{}: interrupted", pace.what);
    } else if (!why && length > pace.longest) {
      why = Error(Code::kTimeout, "{}: fio has not ended after {}", pace.what,
                  human_duration(pace.longest));
    }
    if (why) child.send(SIGKILL);
    if (pace.length > 0) {
      const double share = std::min(1.0, seconds(length) / seconds(pace.length));
      pace.watch.progress(pace.what, pace.begun + (pace.done - pace.begun) * share);
    }
    pollfd ready{child.pidfd(), POLLIN, 0};
    ::poll(&ready, child.pidfd() >= 0 ? 1 : 0, static_cast<int>(kLook / kMillisecond));
  }
}

// nullopt: there is no such program.
std::optional<Output> run(const std::vector<std::string>& command, const Pace& pace) {
  const os::UniqueFd printed = memory_file("fio-stdout");
  const os::UniqueFd said = memory_file("fio-stderr");
  const pid_t parent = ::getpid();
  auto started = os::spawn({.arguments = command,
                            .signals = os::InheritedSignals::of_this_process(),
                            .in_child = [out = printed.get(), err = said.get(), parent] {
                              ::dup2(out, STDOUT_FILENO);
                              ::dup2(err, STDERR_FILENO);
                              ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                              if (::getppid() != parent) ::_exit(1);
                            }});
  if (const auto* failure = std::get_if<os::ExecFailure>(&started)) {
    if (failure->error_number == ENOENT) return std::nullopt;
    throw errno_error(failure->error_number, failure->text);
  }
  const os::Ended ended = wait_for(std::get<os::Child>(started), pace);
  return Output{ended.exit_code(), content(printed), content(said)};
}

std::string last_line(std::string_view text) {
  text = trim(text);
  const auto at = text.rfind('\n');
  return to_utf8(at == std::string_view::npos ? text : text.substr(at + 1));
}

Nanos nanos_of(const nlohmann::json& number) { return static_cast<Nanos>(number.get<double>()); }

}  // namespace

std::optional<std::string> fio_version(const Watch& watch) {
  const auto output = run({"fio", "--version"},
                          {.watch = watch, .what = "fio --version", .longest = kVersionPatience});
  if (!output) return std::nullopt;
  const std::string version = last_line(output->printed);
  if (output->exit_code != 0 || !version.starts_with("fio-")) {
    throw Error(Code::kUnsupported, "fio --version ended with {}: {}; give --engine threads",
                output->exit_code, last_line(output->said));
  }
  return version;
}

std::string_view fio_io_engine() {
  io_uring_params parameters{};
  const auto ring = static_cast<int>(::syscall(SYS_io_uring_setup, 1, &parameters));
  return os::UniqueFd(ring) ? "io_uring" : "libaio";
}

std::vector<std::string> fio_command(const DiskJob& job, const DiskPhaseKind& kind) {
  const bool random = kind.order == DiskPhaseKind::Order::kRandom;
  const bool reads = kind.way == DiskPhaseKind::Way::kRead;
  std::vector<std::string> command = {
      "fio",
      "--name=bench",
      "--thread",
      fmt::format("--filename=/proc/{}/fd/{}", ::getpid(), job.fd),
      "--allow_file_create=0",
      fmt::format("--size={}", job.block * job.blocks),
      fmt::format("--bs={}", job.block),
      fmt::format("--iodepth={}", job.options.depth),
      fmt::format("--ioengine={}", fio_io_engine()),
      fmt::format("--direct={}", job.page_cache == PageCache::kPast ? 1 : 0),
      fmt::format("--rw={}{}", random ? "rand" : "", reads ? "read" : "write"),
      fmt::format("--runtime={}ms", job.options.length / kMillisecond),
      "--randrepeat=0",
      "--lat_percentiles=1",
      "--clat_percentiles=0",
      "--output-format=json",
  };
  // Through the page cache a block that comes twice is no read of the disk.
  if (job.page_cache == PageCache::kPast || !reads) {
    command.emplace_back("--time_based");
    command.emplace_back("--norandommap");
  }
  if (!reads) {
    command.emplace_back("--refill_buffers");
    command.emplace_back("--end_fsync=1");
  }
  return command;
}

Figures parse_fio(std::string_view printed, std::string_view said, DiskPhaseKind::Way way) {
  try {
    // Before it there may be notes.
    const auto begin = std::min(printed.find('{'), printed.size());
    const auto report = nlohmann::json::parse(printed.substr(begin));
    const auto& job = report.at("jobs").at(0);
    if (const int error = job.at("error").get<int>(); error != 0)
      throw errno_error(error, fmt::format("fio failed ({})", last_line(said)));
    const auto& side = job.at(way == DiskPhaseKind::Way::kRead ? "read" : "write");
    Figures figures;
    figures.calls = side.at("total_ios").get<std::int64_t>();
    figures.amount = side.at("io_bytes").get<std::int64_t>();
    if (figures.calls == 0) throw Error(Code::kIo, "fio did nothing ({})", last_line(said));
    // Its "runtime" is in whole milliseconds.
    figures.length = static_cast<Nanos>(static_cast<double>(figures.amount) /
                                        side.at("bw_bytes").get<double>() * 1e9);
    const auto& latency = side.at("lat_ns");
    figures.median = nanos_of(latency.at("percentile").at("50.000000"));
    figures.p99 = nanos_of(latency.at("percentile").at("99.000000"));
    figures.longest = nanos_of(latency.at("max"));
    return figures;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Code::kCorrupt, "this is no report of fio ({}): '{}'; it said: {}", error.what(),
                to_utf8(trim(printed.substr(0, 200))), last_line(said));
  }
}

Figures run_by_fio(const DiskJob& job, const DiskPhaseKind& kind) {
  const auto output = run(fio_command(job, kind), {.watch = job.options.watch,
                                                   .what = kind.name,
                                                   .length = job.options.length,
                                                   .longest = job.options.length + kPatience,
                                                   .begun = job.begun,
                                                   .done = job.done});
  if (!output) throw Error(Code::kNotFound, "fio is not installed any more");
  if (trim(output->printed).empty()) {
    throw Error(Code::kIo, "fio ended with {} and no report: {}", output->exit_code,
                last_line(output->said));
  }
  return parse_fio(output->printed, output->said, kind.way);
}

}  // namespace bedplate::bench
