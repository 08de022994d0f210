#include "data/dataset.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "data/format.h"
#include "native.h"

namespace bedplate::python {
namespace {

using data::Dataset;

store::StoreOptions store_options(const nb::dict& from) {
  store::StoreOptions out;
  const auto text = [&](const char* name) {
    return from.contains(name) ? nb::cast<std::string>(from[name]) : std::string();
  };
  const auto is_set = [&](const char* name) {
    return from.contains(name) && nb::cast<bool>(from[name]);
  };
  out.endpoint = text("endpoint");
  out.region = text("region");
  out.anonymous = is_set("anonymous");
  out.instance_profile = is_set("instance_profile");
  if (is_set("direct")) out.direct = store::StoreOptions::Direct::kYes;
  return out;
}

// URLs are bytes: names of files need not be UTF-8.
std::shared_ptr<const Dataset> open(const std::vector<nb::bytes>& names, const std::string& format,
                                    bool recover, double timeout, const std::string& cache,
                                    const nb::dict& storage) {
  std::vector<std::string> urls;
  for (const nb::bytes& name : names) urls.emplace_back(name.c_str(), name.size());
  data::DatasetOptions options;
  options.store = store_options(storage);
  options.format = format;
  options.shard.cut_off = recover ? data::CutOff::kRecover : data::CutOff::kRefuse;
  options.shard.timeout = static_cast<Nanos>(timeout * kSecond);
  const nb::gil_scoped_release released;
  if (!cache.empty()) options.cache = store::Cache::open(store::parse_cache(cache));
  return Dataset::open(urls, options);
}

nb::dict get(const Dataset& dataset, std::int64_t sample, double timeout) {
  data::Sample out;
  {
    const nb::gil_scoped_release released;
    out = dataset.get(sample, Deadline::after(static_cast<Nanos>(timeout * kSecond)));
  }
  return to_python(out);
}

nb::list shards(const Dataset& dataset) {
  nb::list out;
  for (const Dataset::Shard& shard : dataset.shards()) {
    nb::dict one;
    one["key"] = text_of(shard.object.key);
    one["bytes"] = shard.object.size;
    one["format"] = std::string(shard.format->name);
    one["first"] = shard.first;
    one["samples"] = shard.samples;
    out.append(one);
  }
  return out;
}

// What the data set's cache did in this process; None without one.
nb::object cache_counters(const Dataset& dataset) {
  if (!dataset.cache()) return nb::none();
  const store::CacheCounters counters = dataset.cache()->counters();
  nb::dict out;
  out["hits"] = counters.hits;
  out["hit_bytes"] = counters.hit_bytes;
  out["memory_hits"] = counters.memory_hits;
  out["misses"] = counters.misses;
  out["origin_reads"] = counters.origin_reads;
  out["origin_bytes"] = counters.origin_bytes;
  out["evictions"] = counters.evictions;
  out["waits"] = counters.waits;
  out["fill_failures"] = counters.fill_failures;
  out["bad_checksums"] = counters.bad_checksums;
  out["pass_throughs"] = counters.pass_throughs;
  return out;
}

}  // namespace

void bind_dataset(nb::module_& module) {
  nb::class_<Dataset>(module, "Dataset")
      .def_static("open", &open)
      .def("get", &get)
      .def("shards", &shards)
      .def("notes",
           [](const Dataset& dataset) {
             return std::vector<std::string>(dataset.notes().begin(), dataset.notes().end());
           })
      .def("cache_counters", &cache_counters)
      .def_prop_ro("samples", &Dataset::samples)
      .def_prop_ro("stored_bytes", &Dataset::stored_bytes)
      .def_prop_ro("fingerprint", &Dataset::fingerprint)
      .def_prop_ro("memory_bytes", &Dataset::memory_bytes);
  module.def("expand_braces", [](const std::string& text) { return data::expand_braces(text); });
  module.def("formats", [] {
    std::vector<std::string> names;
    for (const data::Format* format : data::all_formats()) names.emplace_back(format->name);
    return names;
  });
}

}  // namespace bedplate::python
