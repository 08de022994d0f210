#include "data/loader.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "native.h"
#include "store/cache/cache.h"
#include "store/remote_counters.h"

namespace bedplate::python {
namespace {

using data::Batch;
using data::FieldKind;
using data::FieldSpec;
using data::ImageSpec;
using data::LoaderOptions;

template <typename T>
T value_of(const nb::dict& from, const char* name, T otherwise) {
  return from.contains(name) ? nb::cast<T>(from[name]) : otherwise;
}

// A name of a table, or Error{kInvalid}. Values come from bedplate.data, which checks them too.
template <typename T, std::size_t N>
T one_of(std::string_view given, const std::pair<std::string_view, T> (&table)[N]) {
  for (const auto& [name, value] : table) {
    if (name == given) return value;
  }
  throw Error(Code::kInternal, "{} is not among the choices", given);
}

constexpr std::pair<std::string_view, FieldKind> kKinds[] = {
    {"as_is", FieldKind::kAsIs}, {"cast", FieldKind::kCast},     {"number", FieldKind::kNumber},
    {"pad", FieldKind::kPadded}, {"ragged", FieldKind::kRagged}, {"image", FieldKind::kImage},
    {"npy", FieldKind::kNpy}};
constexpr std::pair<std::string_view, data::Fit> kFits[] = {
    {"stretch", data::Fit::kStretch},
    {"center_crop", data::Fit::kCenterCrop},
    {"random_resized_crop", data::Fit::kRandomResizedCrop},
    {"pad", data::Fit::kPad}};
constexpr std::pair<std::string_view, data::Tail> kTails[] = {
    {"pad", data::Tail::kPad}, {"drop", data::Tail::kDrop}, {"uneven", data::Tail::kUneven}};
constexpr std::pair<std::string_view, data::OnBad> kOnBad[] = {{"raise", data::OnBad::kRaise},
                                                               {"skip", data::OnBad::kSkip},
                                                               {"refetch", data::OnBad::kRefetch}};
constexpr std::pair<std::string_view, data::Verify> kVerify[] = {{"always", data::Verify::kAlways},
                                                                 {"first", data::Verify::kFirst},
                                                                 {"never", data::Verify::kNever}};
constexpr std::pair<std::string_view, data::Dtype> kNumbers[] = {
    {"i8", data::Dtype::kI8},   {"u8", data::Dtype::kU8},   {"i16", data::Dtype::kI16},
    {"u16", data::Dtype::kU16}, {"i32", data::Dtype::kI32}, {"u32", data::Dtype::kU32},
    {"i64", data::Dtype::kI64}, {"u64", data::Dtype::kU64}, {"f32", data::Dtype::kF32},
    {"f64", data::Dtype::kF64}};

ImageSpec image_of(const nb::dict& from) {
  ImageSpec out;
  out.height = value_of(from, "height", out.height);
  out.width = value_of(from, "width", out.width);
  out.channels = value_of(from, "channels", out.channels);
  out.layout = value_of<std::string>(from, "layout", "hwc") == "chw" ? data::ImageLayout::kChw
                                                                     : data::ImageLayout::kHwc;
  out.fit = one_of(value_of<std::string>(from, "fit", "stretch"), kFits);
  out.resize = value_of(from, "resize", out.resize);
  out.flip = value_of(from, "flip", out.flip);
  if (from.contains("scale"))
    out.scale = {nb::cast<double>(from["scale"][0]), nb::cast<double>(from["scale"][1])};
  if (from.contains("ratio"))
    out.ratio = {nb::cast<double>(from["ratio"][0]), nb::cast<double>(from["ratio"][1])};
  if (from.contains("background")) {
    for (std::size_t i = 0; i < out.background.size(); ++i)
      out.background[i] = nb::cast<std::uint8_t>(from["background"][i]);
  }
  return out;
}

data::ImageDecoderOptions decoder_of(const nb::dict& from) {
  data::ImageDecoderOptions out;
  if (value_of(from, "accept_damage", false)) out.damage = data::Damage::kAccept;
  if (!value_of(from, "exif", true)) out.exif = data::Exif::kIgnore;
  if (value_of(from, "compose_alpha", false)) out.alpha = data::Alpha::kCompose;
  out.max_pixels = value_of(from, "max_pixels", out.max_pixels);
  return out;
}

FieldSpec field_of(const nb::dict& from) {
  FieldSpec out{.name = nb::cast<std::string>(from["name"])};
  out.as = value_of<std::string>(from, "as", "");
  out.kind = one_of(value_of<std::string>(from, "kind", "as_is"), kKinds);
  out.dtype = one_of(value_of<std::string>(from, "dtype", "i64"), kNumbers);
  out.length = value_of<std::int64_t>(from, "length", 0);
  out.fill = value_of<double>(from, "fill", 0);
  if (out.kind == FieldKind::kImage) {
    out.image = image_of(from);
    out.decoder = decoder_of(from);
  }
  return out;
}

// The time that a thread of a loader is in Python, or waits for its lock. The interpreter's end
// kills threads that come to it then, and C++ does not survive that: end_all() comes first.
class Turn {
 public:
  Turn() {
    ++turns_;
    if (over_) --turns_, has_it_ = false;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (has_it_) --turns_;
  }
  explicit operator bool() const { return has_it_; }

  // There are no more of them; false when some have not ended after so many seconds.
  static bool end_all(double patience) {
    const nb::gil_scoped_release released;
    over_ = true;
    const Deadline deadline = Deadline::after(static_cast<Nanos>(patience * kSecond));
    while (turns_ > 0 && !deadline.passed())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return turns_ == 0;
  }

 private:
  bool has_it_ = true;
  static inline std::atomic<int> turns_{0};
  static inline std::atomic<bool> over_{false};
};

// Python's object in C++ threads: taken and let go with the interpreter's lock; not let go when the
// interpreter ends.
std::shared_ptr<nb::object> shared_object(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* held) {
            if (PyGILState_Check()) {
              delete held;
              return;
            }
            const Turn turn;
            if (!turn) return;
            const nb::gil_scoped_acquire locked;
            delete held;
          }};
}

// What decode() makes of each sample, as a list in batch.made; called in loader threads.
void decode_each(const nb::object& function, const data::DecodeCall& call, Batch& batch) {
  const Turn turn;
  if (!turn) throw Error(Code::kInvalid, "the interpreter is about to end");
  const nb::gil_scoped_acquire locked;
  nb::list made;
  for (std::size_t i = 0; i < call.samples.size(); ++i) {
    nb::dict sample = to_python(call.samples[i]);
    sample["__seed__"] = call.seeds[i];
    if (!call.sources.empty()) sample["__source__"] = call.sources[i];
    try {
      made.append(function(sample));
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;
      const std::string type = nb::cast<std::string>(error.type().attr("__name__"));
      if (!call.leave_out(i, fmt::format("{}: {}", type, nb::str(error.value()).c_str()))) {
        if (nb::hasattr(error.value(), "add_note"))
          error.value().attr("add_note")(to_utf8("decode() was given " + call.place(i)));
        throw;
      }
    }
  }
  if (made.size() == 0 && !call.samples.empty())
    throw Error(Code::kCorrupt, "decode() could decode no sample of a batch");
  while (made.size() < call.samples.size()) made.append(made[0]);
  batch.made = shared_object(std::move(made));
}

LoaderOptions options_of(const nb::dict& from) {
  LoaderOptions out;
  out.batch_size = nb::cast<std::int64_t>(from["batch_size"]);
  out.rank = nb::cast<std::int64_t>(from["rank"]);
  out.world_size = nb::cast<std::int64_t>(from["world_size"]);
  out.tail = one_of(nb::cast<std::string>(from["tail"]), kTails);
  out.threads = nb::cast<int>(from["threads"]);
  out.prefetch_bytes = nb::cast<std::int64_t>(from["prefetch_bytes"]);
  for (const nb::handle field : nb::cast<nb::list>(from["fields"]))
    out.fields.push_back(field_of(nb::cast<nb::dict>(field)));
  out.on_bad = one_of(nb::cast<std::string>(from["on_bad"]), kOnBad);
  out.most_skipped = nb::cast<std::int64_t>(from["most_skipped"]);
  out.verify = one_of(nb::cast<std::string>(from["verify"]), kVerify);
  out.read_timeout = static_cast<Nanos>(nb::cast<double>(from["timeout"]) * kSecond);
  if (!from["keep_window"].is_none())
    out.keep_window =
        nb::cast<bool>(from["keep_window"]) ? data::KeepWindow::kAlways : data::KeepWindow::kNever;
  if (!from["decode"].is_none()) {
    out.decode = [held = shared_object(nb::borrow(from["decode"]))](const data::DecodeCall& call,
                                                                    Batch& batch) {
      decode_each(*held, call, batch);
    };
  }
  return out;
}

class PyLoader {
 public:
  PyLoader(const nb::list& parts, const nb::dict& order, const nb::dict& options) {
    std::vector<data::SourcePart> of;
    for (const nb::handle part : parts) {
      const auto pair = nb::cast<nb::tuple>(part);
      // nanobind's own shared pointers want the interpreter's lock whenever they die.
      of.push_back({std::shared_ptr<const data::Dataset>(shared_object(nb::borrow(pair[0])),
                                                         nb::cast<const data::Dataset*>(pair[0])),
                    nb::cast<double>(pair[1])});
    }
    const data::SourceOptions source_options{
        .seed = nb::cast<std::uint64_t>(order["seed"]),
        .block = nb::cast<std::int64_t>(order["block"]),
        .window = nb::cast<std::int64_t>(order["window"]),
        .lanes = nb::cast<std::int64_t>(order["lanes"]),
        .epoch_samples = nb::cast<std::int64_t>(order["epoch_samples"])};
    LoaderOptions loader_options = options_of(options);
    const nb::gil_scoped_release released;
    source_ = std::make_shared<const data::Source>(std::move(of), source_options);
    loader_ = std::make_unique<data::Loader>(source_, std::move(loader_options));
  }
  PyLoader(const PyLoader&) = delete;
  PyLoader& operator=(const PyLoader&) = delete;
  // Its threads may be waiting for the interpreter's lock.
  ~PyLoader() { close(5.0); }

  // False when threads did not end in so many seconds, because decode() does not return; they are
  // left behind.
  bool close(double patience) {
    const nb::gil_scoped_release released;
    closing_ = true;
    const Deadline deadline = Deadline::after(static_cast<Nanos>(patience * kSecond) + kSecond);
    // Whoever waits for a batch, in another thread, looks up soon; the loader is not taken from it.
    // In this thread a signal's handler may have come in between.
    const int own = here_ == this ? 1 : 0;
    while (inside_ > own && !deadline.passed())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (inside_ > own) return false;
    const bool ended = !loader_ || loader_->close(static_cast<Nanos>(patience * kSecond));
    loader_.reset();
    return ended;
  }

  // {name: column}, what decode() made, or None at the epoch's end.
  nb::object next(Arrays arrays, double timeout) {
    const Inside inside(*this);
    const auto batch = wait_for_batch(static_cast<Nanos>(timeout * kSecond));
    if (!batch) return nb::none();
    if (batch->made) return *std::static_pointer_cast<nb::object>(batch->made);
    return to_python(batch, arrays);
  }

  std::string state() { return loader().state().to_json(); }
  void begin(const std::string& state) {
    const data::LoaderState parsed = data::LoaderState::from_json(state);
    const nb::gil_scoped_release released;
    loader().begin(parsed);
  }
  void begin_epoch(std::int64_t epoch) {
    const nb::gil_scoped_release released;
    loader().begin({.epoch = epoch, .fingerprint = source_->fingerprint()});
  }
  void begin_with(std::vector<std::int64_t> samples, std::int64_t epoch, std::int64_t consumed) {
    const nb::gil_scoped_release released;
    loader().begin_with(
        std::move(samples),
        {.epoch = epoch, .consumed = consumed, .fingerprint = source_->fingerprint()});
  }
  std::int64_t steps_left() { return loader().steps_left(); }
  nb::dict stats();
  // Batches handed over; nanoseconds of making them, of that of reading; of CPU time; of idleness;
  // of the consumer's waiting; samples and bytes that were read.
  nb::tuple times() {
    const data::LoaderStats stats = loader().stats();
    return nb::make_tuple(stats.batches, stats.make_ns, stats.read_ns, stats.decode_ns,
                          stats.idle_ns, stats.wait_ns, stats.samples, stats.bytes);
  }
  nb::list caches();
  std::int64_t window_bytes() {
    const auto window = loader().window();
    return window ? window->options().memory_bytes : 0;
  }

 private:
  struct Inside {
    explicit Inside(PyLoader& loader) : loader_(loader), before_(std::exchange(here_, &loader)) {
      ++loader_.inside_;
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() {
      --loader_.inside_;
      here_ = before_;
    }

   private:
    PyLoader& loader_;
    const PyLoader* const before_;
  };

  data::Loader& loader() {
    if (!loader_) throw Error(Code::kInvalid, "the loader is closed");
    return *loader_;
  }

  std::shared_ptr<const Batch> wait_for_batch(Nanos timeout) {
    const Deadline deadline = Deadline::after(timeout);
    for (;;) {
      if (closing_) throw Error(Code::kInvalid, "the loader is closed");
      std::optional<std::shared_ptr<const Batch>> batch;
      {
        const nb::gil_scoped_release released;
        batch = loader().next_within(deadline.within(100 * kMillisecond).left());
      }
      if (batch) return *batch;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (deadline.passed())
        throw Error(Code::kTimeout, "no batch came within {} s; stats() says what its threads do",
                    timeout / kSecond);
    }
  }

  std::shared_ptr<const data::Source> source_;  // shared with the loader
  std::unique_ptr<data::Loader> loader_;
  std::atomic<bool> closing_{false};
  std::atomic<int> inside_{0};  // threads in next()
  static thread_local const PyLoader* here_;
};

thread_local const PyLoader* PyLoader::here_ = nullptr;

nb::dict PyLoader::stats() {
  const data::LoaderStats stats = loader().stats();
  nb::dict out;
  out["batches"] = stats.batches;
  out["samples"] = stats.samples;
  out["bytes"] = stats.bytes;
  out["make_ns"] = stats.make_ns;
  out["read_ns"] = stats.read_ns;
  out["check_ns"] = stats.check_ns;
  out["decode_ns"] = stats.decode_ns;
  out["wait_ns"] = stats.wait_ns;
  out["idle_ns"] = stats.idle_ns;
  out["skipped"] = stats.skipped;
  out["refetched"] = stats.refetched;
  out["ahead"] = loader().ahead();
  nb::list bad;
  for (const data::BadSample& one : stats.bad) bad.append(nb::make_tuple(one.sample, one.what));
  out["bad"] = bad;
  out["window"] = nb::none();
  if (const auto window = loader().window()) {
    const store::CacheCounters did = window->counters();
    nb::dict of;
    of["bytes"] = window->options().memory_bytes;
    of["hits"] = did.hits;
    of["misses"] = did.misses;
    of["origin_reads"] = did.origin_reads;
    of["origin_bytes"] = did.origin_bytes;
    out["window"] = of;
  }
  return out;
}

// Of each cache that its data sets are read through, its own window too: which one (the same number
// for the same cache), what it did in this process in the order of bedplate.data.report, and why it
// was passed by.
nb::list PyLoader::caches() {
  nb::list out;
  std::set<const store::Cache*> caches = {loader().window().get()};
  for (std::size_t part = 0; part < source_->parts(); ++part)
    caches.insert(source_->dataset(part).cache().get());
  caches.erase(nullptr);
  for (const store::Cache* const cache : caches) {
    const store::CacheActivity did = cache->activity();
    const store::CacheCounters& of = did.counters;
    out.append(
        nb::make_tuple(reinterpret_cast<std::uintptr_t>(cache),
                       nb::make_tuple(of.hits, of.hit_bytes, did.memory_bytes, of.misses,
                                      of.origin_bytes, of.evictions, of.pass_throughs, of.waits),
                       did.trouble));
  }
  return out;
}

// Reads, nanoseconds, bytes, retries and failures of the process's remote stores, and the latency
// that 99 of 100 reads do not exceed.
nb::tuple remote_counters() {
  const store::RemoteCounters all = store::remote_counters();
  return nb::make_tuple(all.reads, all.read_ns, all.bytes, all.retries, all.failed,
                        all.latency_at(0.99));
}

}  // namespace

void bind_loader(nb::module_& module) {
  module.def("block_shuffle", [](std::int64_t stored_bytes, std::int64_t samples) {
    const data::BlockShuffle shuffle = data::block_shuffle(stored_bytes, samples);
    return nb::make_tuple(shuffle.block, shuffle.window);
  });
  nb::enum_<Arrays>(module, "Arrays").value("NUMPY", Arrays::kNumpy).value("TORCH", Arrays::kTorch);
  nb::class_<PyLoader>(module, "Loader")
      .def(nb::init<const nb::list&, const nb::dict&, const nb::dict&>())
      .def("next", &PyLoader::next)
      .def("state", &PyLoader::state)
      .def("begin", &PyLoader::begin)
      .def("begin_epoch", &PyLoader::begin_epoch)
      .def("begin_with", &PyLoader::begin_with)
      .def("steps_left", &PyLoader::steps_left)
      .def("stats", &PyLoader::stats)
      .def("times", &PyLoader::times)
      .def("caches", &PyLoader::caches)
      .def("window_bytes", &PyLoader::window_bytes)
      .def("close", &PyLoader::close);
  module.def("remote_counters", &remote_counters);
  module.def("end_turns", &Turn::end_all);
  // The sample at each of `count` positions from `first` on: for looking at orders.
  module.def(
      "order", [](std::int64_t samples, std::uint64_t seed, std::int64_t block, std::int64_t window,
                  std::int64_t epoch, std::int64_t first, std::int64_t count) {
        const data::Order order(
            {.samples = samples, .seed = seed, .block = block, .window = window}, epoch);
        if (first < 0 || count < 0 || first > samples - count)
          throw Error(Code::kInvalid, "positions {} to {} of {}", first, first + count, samples);
        std::vector<std::int64_t> out(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i)
          out[static_cast<std::size_t>(i)] = order.at(first + i);
        return out;
      });
}

}  // namespace bedplate::python
