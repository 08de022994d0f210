#include "probe/internal/codec.h"

namespace bedplate::probe {
namespace {

std::uint64_t bits(std::int64_t value) { return static_cast<std::uint64_t>(value); }
std::int64_t from_bits(std::uint64_t value) { return static_cast<std::int64_t>(value); }

}  // namespace

void Encoder::number(std::uint64_t value) {
  while (value >= 0x80) {
    out_ += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out_ += static_cast<char>(value);
}

void Encoder::signed_number(std::uint64_t difference) {
  number(difference << 1 ^ (0 - (difference >> 63)));
}

bool Decoder::number(std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    if (shift == 63 && byte > 1) return false;
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool Decoder::signed_number(std::uint64_t& difference) {
  std::uint64_t zigzag;
  if (!number(zigzag)) return false;
  difference = zigzag >> 1 ^ (0 - (zigzag & 1));
  return true;
}

// Times come at an almost even pace: the change of the difference is small.
void encode(std::span<const Sample> items, std::string& out) {
  Encoder to(out);
  std::uint64_t t = 0, pace = 0, value = 0;
  for (const Sample& item : items) {
    const std::uint64_t difference = bits(item.t) - t;
    to.signed_number(difference - pace);
    to.signed_number(bits(item.value) - value);
    t = bits(item.t);
    pace = difference;
    value = bits(item.value);
  }
}

bool decode(std::string_view bytes, std::vector<Sample>& items) {
  Decoder from(bytes);
  std::uint64_t t = 0, pace = 0, value = 0;
  while (!from.done()) {
    std::uint64_t change, step;
    if (!from.signed_number(change) || !from.signed_number(step)) return false;
    pace += change;
    t += pace;
    value += step;
    items.push_back({from_bits(t), from_bits(value)});
  }
  return true;
}

// flags: 1 evaluation, 2 one step only (weight 1 and its own longest), so that most rows carry
// neither.
void encode(std::span<const Step> items, std::string& out) {
  Encoder to(out);
  std::uint64_t index = 0, end = 0, rank = 0;
  for (const Step& item : items) {
    const bool single = item.weight == 1 && item.longest == item.duration;
    to.number((item.evaluation ? 1u : 0u) | (single ? 2u : 0u));
    to.signed_number(bits(item.index) - index);
    to.signed_number(bits(item.rank) - rank);
    to.signed_number(bits(item.start) - end);
    to.signed_number(bits(item.duration));
    if (!single) {
      to.signed_number(bits(item.weight));
      to.signed_number(bits(item.longest));
    }
    for (const Nanos phase : item.phases) to.signed_number(bits(phase));
    index = bits(item.index);
    rank = bits(item.rank);
    end = bits(item.start) + bits(item.duration);
  }
}

bool decode(std::string_view bytes, std::vector<Step>& items) {
  Decoder from(bytes);
  std::uint64_t index = 0, end = 0, rank = 0;
  while (!from.done()) {
    std::uint64_t flags, a, b, c, duration;
    if (!from.number(flags) || !from.signed_number(a) || !from.signed_number(b) ||
        !from.signed_number(c) || !from.signed_number(duration)) {
      return false;
    }
    Step item;
    index += a;
    rank += b;
    item.index = from_bits(index);
    item.rank = static_cast<int>(from_bits(rank));
    item.start = from_bits(end + c);
    item.duration = from_bits(duration);
    item.longest = item.duration;
    item.evaluation = (flags & 1) != 0;
    if ((flags & 2) == 0) {
      std::uint64_t weight, longest;
      if (!from.signed_number(weight) || !from.signed_number(longest)) return false;
      item.weight = from_bits(weight);
      item.longest = from_bits(longest);
    }
    for (Nanos& phase : item.phases) {
      std::uint64_t length;
      if (!from.signed_number(length)) return false;
      phase = from_bits(length);
    }
    end = bits(item.start) + duration;
    items.push_back(item);
  }
  return true;
}

// `arg` goes as two halves: several kinds pack two small numbers into it.
void encode(std::span<const Event> items, std::string& out) {
  Encoder to(out);
  std::uint64_t start = 0, tid = 0;
  for (const Event& item : items) {
    to.signed_number(bits(item.start) - start);
    to.signed_number(bits(item.duration));
    to.number(item.kind);
    to.signed_number(item.tid - tid);
    to.number(item.arg & 0xFFFFFFFF);
    to.number(item.arg >> 32);
    start = bits(item.start);
    tid = item.tid;
  }
}

bool decode(std::string_view bytes, std::vector<Event>& items) {
  Decoder from(bytes);
  std::uint64_t start = 0, tid = 0;
  while (!from.done()) {
    std::uint64_t a, duration, kind, b, low, high;
    if (!from.signed_number(a) || !from.signed_number(duration) || !from.number(kind) ||
        !from.signed_number(b) || !from.number(low) || !from.number(high) || kind > 0xFFFF) {
      return false;
    }
    start += a;
    tid += b;
    items.push_back({from_bits(start), from_bits(duration), static_cast<std::uint16_t>(kind),
                     static_cast<std::uint32_t>(tid), (low & 0xFFFFFFFF) | high << 32});
  }
  return true;
}

void encode(std::span<const StreamSample> items, std::string& out) {
  Encoder to(out);
  std::uint64_t stream = 0, t = 0;
  for (const StreamSample& item : items) {
    to.signed_number(bits(item.stream) - stream);
    to.signed_number(bits(item.item.t) - t);
    to.signed_number(bits(item.item.value));
    stream = bits(item.stream);
    t = bits(item.item.t);
  }
}

bool decode(std::string_view bytes, std::vector<StreamSample>& items) {
  Decoder from(bytes);
  std::uint64_t stream = 0, t = 0;
  while (!from.done()) {
    std::uint64_t a, b, value;
    if (!from.signed_number(a) || !from.signed_number(b) || !from.signed_number(value))
      return false;
    stream += a;
    t += b;
    items.push_back({from_bits(stream), {from_bits(t), from_bits(value)}});
  }
  return true;
}

}  // namespace bedplate::probe
