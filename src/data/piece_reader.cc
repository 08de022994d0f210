#include "data/piece_reader.h"

#include <algorithm>

namespace bedplate::data {
namespace {

// What lies between two pieces costs less to read than another read does.
constexpr std::int64_t kWidestGap = 64 * kKiB;

bool follows(const Piece& before, const Piece& piece, std::int64_t end) {
  return piece.store == before.store && piece.key == before.key &&
         piece.version == before.version && piece.offset >= end && piece.offset - end <= kWidestGap;
}

}  // namespace

void PieceReader::read(std::span<Piece> pieces) {
  std::vector<Run> runs;
  std::size_t needed = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Piece& piece = pieces[i];
    piece.error.reset();
    const std::int64_t end = runs.empty() ? 0 : runs.back().offset + runs.back().bytes;
    const std::int64_t longer = runs.empty() ? 0 : piece.offset + piece.bytes - runs.back().offset;
    if (!runs.empty() && follows(pieces[i - 1], piece, end) && longer <= 2 * kWindowBytes) {
      needed += static_cast<std::size_t>(longer - runs.back().bytes);
      runs.back().bytes = longer;
      runs.back().last = i + 1;
    } else {
      runs.push_back({i, i + 1, piece.offset, piece.bytes, needed});
      needed += static_cast<std::size_t>(piece.bytes);
    }
  }
  if (needed > capacity_) {
    buffer_ = std::make_unique_for_overwrite<std::byte[]>(needed);
    capacity_ = needed;
  }
  // Runs of one store together.
  for (std::size_t first = 0; first < runs.size();) {
    std::size_t last = first + 1;
    while (last < runs.size() && pieces[runs[last].first].store == pieces[runs[first].first].store)
      ++last;
    read_runs(pieces, std::span(runs).subspan(first, last - first));
    first = last;
  }
}

void PieceReader::read_runs(std::span<Piece> pieces, std::span<const Run> runs) {
  std::vector<store::Read> reads;
  reads.reserve(runs.size());
  for (const Run& run : runs) {
    const Piece& first = pieces[run.first];
    reads.push_back({.key = first.key,
                     .offset = run.offset,
                     .into = {buffer_.get() + run.at, static_cast<std::size_t>(run.bytes)},
                     .version = first.version});
  }
  pieces[runs.front().first].store->read(reads, Deadline::after(timeout_));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    if (reads[i].error && run.last - run.first > 1) {
      read_one_by_one(pieces, run);
      continue;
    }
    for (std::size_t p = run.first; p < run.last; ++p) {
      pieces[p].got = std::span<const std::byte>(reads[i].into)
                          .subspan(static_cast<std::size_t>(pieces[p].offset - run.offset),
                                   static_cast<std::size_t>(pieces[p].bytes));
      pieces[p].error = reads[i].error;
    }
  }
}

// One bad piece is not the others' fault.
void PieceReader::read_one_by_one(std::span<Piece> pieces, const Run& run) {
  std::vector<store::Read> reads;
  for (std::size_t p = run.first; p < run.last; ++p) {
    const Piece& piece = pieces[p];
    reads.push_back({.key = piece.key,
                     .offset = piece.offset,
                     .into = {buffer_.get() + run.at + (piece.offset - run.offset),
                              static_cast<std::size_t>(piece.bytes)},
                     .version = piece.version});
  }
  pieces[run.first].store->read(reads, Deadline::after(timeout_));
  for (std::size_t p = run.first; p < run.last; ++p) {
    pieces[p].got = reads[p - run.first].into;
    pieces[p].error = reads[p - run.first].error;
  }
}

}  // namespace bedplate::data
