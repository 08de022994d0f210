// A run as Chrome trace JSON, which https://ui.perfetto.dev and chrome://tracing open.
//
//   write_trace(report, run, [&](std::string_view piece) { out << piece; });
//
// A process a rank: one track of its steps, each divided into its phases (by length; within a step
// their order is not kept), and a track a thread with what the hooks saw, in order. A process
// "machine" carries counters (CPU, pressure, throttling, disk, network) and a track of the
// findings, where their evidence holds. Slices of one track always nest: what overlaps
// (asynchronous collectives) goes to a track of its own.
//
// Writes in pieces of about 64 KiB, so a long run costs no memory beyond itself. An exception of
// the sink passes through.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "doctor/finding.h"
#include "probe/run_data.h"

namespace bedplate::doctor {

using TextSink = std::function<void(std::string_view)>;

void write_trace(const Report& report, const probe::RunData& run, const TextSink& sink);

std::string render_trace(const Report& report, const probe::RunData& run);

}  // namespace bedplate::doctor
