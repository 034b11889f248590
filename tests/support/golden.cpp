#include "support/golden.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/io/safetensors.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::testing {
namespace {

std::vector<Tensor> read_all(const io::SafetensorsFile& file, const nlohmann::json& names) {
  std::vector<Tensor> tensors;
  for (const auto& name : names)
    tensors.push_back(name.is_null() ? Tensor() : file.tensor(name.get<std::string>()));
  return tensors;
}

GoldenCase read_case(const io::SafetensorsFile& file, const nlohmann::json& item) {
  GoldenCase result{.name = item.at("name"),
                    .op = item.at("op"),
                    .args = GoldenArgs(item.at("args").dump()),
                    .inputs = read_all(file, item.at("inputs")),
                    .outputs = read_all(file, item.at("outputs")),
                    .grad_outputs = read_all(file, item.at("grad_outputs")),
                    .grads = read_all(file, item.at("grads"))};
  result.grads.resize(result.inputs.size());  // ops without gradients list none
  return result;
}

io::SafetensorsFile open_golden(std::string_view file) {
  return io::SafetensorsFile::open(golden_file(file));
}

nlohmann::json list_cases(const io::SafetensorsFile& file) {
  return nlohmann::json::parse(file.metadata().at("cases"));
}

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001B3u;
  return hash;
}

// Uniform over [-1, 1): element `index` of the tensor whose name hashes to `hash`.
double fill_unit(std::uint64_t hash, std::uint64_t index) {
  std::uint64_t z = hash + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return 2.0 * (static_cast<double>(z >> 40) * 0x1p-24) - 1.0;
}

// All elements in order. Conversion happens here rather than in the kernels that are under test.
std::vector<double> to_doubles(const Tensor& tensor) {
  const Tensor host = tensor.detach().to(cpu).contiguous();
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(host.numel()));
  dispatch_all(host.dtype(), "to_doubles", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const T value : host.flat<T>())
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
        values.push_back(static_cast<float>(value));
      else
        values.push_back(static_cast<double>(value));
  });
  return values;
}

}  // namespace

struct GoldenArgs::Object {
  nlohmann::json json;
  template <class T>
  T value(std::string_view key, T fallback) const {
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? fallback : found->get<T>();
  }
};

GoldenArgs::GoldenArgs(std::string_view json)
    : object_(std::make_shared<const Object>(Object{nlohmann::json::parse(json)})) {}

bool GoldenArgs::has(std::string_view key) const {
  const auto found = object_->json.find(key);
  return found != object_->json.end() && !found->is_null();
}
double GoldenArgs::number(std::string_view key, double fallback) const {
  return object_->value(key, fallback);
}
std::int64_t GoldenArgs::integer(std::string_view key, std::int64_t fallback) const {
  return object_->value(key, fallback);
}
bool GoldenArgs::flag(std::string_view key, bool fallback) const {
  return object_->value(key, fallback);
}
std::string GoldenArgs::text(std::string_view key, std::string fallback) const {
  return object_->value(key, std::move(fallback));
}
std::vector<std::string> GoldenArgs::texts(std::string_view key) const {
  return object_->value(key, std::vector<std::string>());
}
std::vector<double> GoldenArgs::numbers(std::string_view key) const {
  return object_->value(key, std::vector<double>());
}
Dims GoldenArgs::dims(std::string_view key, Dims fallback) const {
  if (!has(key)) return fallback;
  const auto& value = object_->json.at(std::string(key));
  if (value.is_number()) return {value.get<std::int64_t>()};
  return Dims(std::span<const std::int64_t>(value.get<std::vector<std::int64_t>>()));
}
std::string GoldenArgs::json() const { return object_->json.dump(); }

std::filesystem::path source_dir() {
  const char* chosen = std::getenv("LOCKSTEP_SOURCE_DIR");
  return chosen && *chosen ? chosen : LOCKSTEP_PROJECT_DIR;
}

std::filesystem::path golden_dir() {
  const char* chosen = std::getenv("LOCKSTEP_GOLDEN_DIR");
  return chosen && *chosen ? std::filesystem::path(chosen) : source_dir() / "tests/data/golden";
}

std::filesystem::path reference_dir() { return source_dir() / "tests/data/reference"; }

std::filesystem::path golden_file(std::string_view file) {
  const std::string name = std::string(file) + ".safetensors";
  const auto golden = golden_dir() / name;
  if (exists(golden)) return golden;
  return reference_dir() / name;
}

std::filesystem::path data_dir() {
  const char* chosen = std::getenv("LOCKSTEP_DATA_DIR");
  return chosen && *chosen ? std::filesystem::path(chosen) : source_dir() / "../shared/data";
}

std::vector<GoldenCase> load_golden(std::string_view file) {
  const auto opened = open_golden(file);
  std::vector<GoldenCase> cases;
  for (const auto& item : list_cases(opened)) cases.push_back(read_case(opened, item));
  return cases;
}

GoldenCase load_golden_case(std::string_view file, std::string_view name) {
  const auto opened = open_golden(file);
  for (const auto& item : list_cases(opened))
    if (item.at("name") == name) return read_case(opened, item);
  LOCKSTEP_THROW(InvalidArgument, opened.path().string(), " has no case '", name, "'");
}

double golden_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-9;
    case DType::f32: return 1e-5;
    case DType::bf16:
    case DType::f16: return 1e-2;
    default: return 0;
  }
}

Tensor fill_rule(std::string_view name, const Shape& shape, DType dtype) {
  const std::int64_t count = numel(shape);
  const bool matrix = shape.size() >= 2;
  const bool about_one = !matrix && (name.ends_with("weight") || name.ends_with("running_var"));
  const double scale =
      matrix ? std::sqrt(3.0 / (static_cast<double>(count) / static_cast<double>(shape[0]))) : 0.1;
  const std::uint64_t hash = fnv1a(name);
  Tensor result = empty(shape, {.dtype = dtype});
  dispatch_floating(dtype, "fill_rule", [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::uint64_t index = 0;
    for (T& value : result.flat<T>())
      value = T(static_cast<float>((about_one ? 1.0 : 0.0) + fill_unit(hash, index++) * scale));
  });
  return result;
}

void expect_close(const Tensor& actual, const Tensor& expected, double tolerance,
                  std::string_view what, std::source_location where) {
  const auto failure = [&](const auto&... parts) {
    ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line()))
        << what << ": " << lockstep::detail::concat(parts...);
  };
  if (!actual.defined() || !expected.defined())
    return failure(actual.defined() ? "the expected" : "the actual", " tensor is undefined");
  if (!(actual.shape() == expected.shape()))
    return failure("shape ", actual.shape(), " in place of ", expected.shape());
  const auto got = to_doubles(actual), want = to_doubles(expected);
  double largest = 0, worst = 0;
  std::size_t at = 0;
  for (const double value : want)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    const double off = std::abs(got[i] - want[i]);
    if (off <= worst) continue;
    worst = std::isfinite(off) ? off : HUGE_VAL;
    at = i;
  }
  // Where zeros are expected there is no magnitude to be relative to.
  const double allowed = tolerance * (largest > 0 ? largest : 1.0);
  if (worst > allowed)
    failure("element ", at, " of ", actual.shape(), " is ", got[at], " in place of ", want[at],
            ": off by ", worst, ", allowed ", allowed);
}

void expect_close(const Tensor& actual, const Tensor& expected, std::string_view what,
                  std::source_location where) {
  expect_close(actual, expected, actual.defined() ? golden_tolerance(actual.dtype()) : 0, what,
               where);
}

}  // namespace lockstep::testing
