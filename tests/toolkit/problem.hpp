#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cuda/cudnn_ops.hpp"

/// @file
/// Reads the lines of tests/data/cudnn_problems.txt; simgpu/src/cudnn/problem_text.hpp has their
/// form.

namespace lockstep::test {

namespace cudnn = backend::cudnn;

inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

inline std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> values;
  for (const std::string& part : split(text, ',')) values.push_back(std::stoll(part));
  return values;
}

inline DType dtype_named(const std::string& text) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::boolean})
    if (name(dtype) == text) return dtype;
  throw std::invalid_argument("no dtype " + text);
}

/// An array at an address of the alignment, which nobody may read.
inline ArrayView array_of(const std::string& text) {
  if (text == "-") return {};
  const auto parts = split(text, ':');
  const auto shape = numbers(parts.at(2)), strides = numbers(parts.at(3));
  const std::uintptr_t address = (std::uintptr_t{1} << 20) + std::stoull(parts.at(1));
  return {reinterpret_cast<void*>(address), dtype_named(parts.at(0)),
          Shape(std::span<const std::int64_t>(shape)),
          Strides(std::span<const std::int64_t>(strides))};
}

inline kernels::Pair pair_of(const std::string& text) {
  const auto values = numbers(text);
  return {values.at(0), values.at(1)};
}

/// True if the GPU has a plan for the problem of the line.
inline bool has_plan(const cudnn::GpuDescription& gpu, const std::string& line) {
  const auto parts = split(line, '|');
  if (parts.at(0) == "convolution")
    return cudnn::has_plan(gpu, static_cast<cudnn::ConvDirection>(std::stoi(parts.at(1))),
                           {.image = array_of(parts.at(2)),
                            .weight = array_of(parts.at(3)),
                            .result = array_of(parts.at(4))},
                           {.stride = pair_of(parts.at(5)),
                            .padding = pair_of(parts.at(6)),
                            .dilation = pair_of(parts.at(7)),
                            .groups = std::stoll(parts.at(8))});
  const auto array = [&](std::size_t i) { return array_of(parts.at(3 + i)); };
  return cudnn::has_plan(gpu,
                         {.q = array(0),
                          .k = array(1),
                          .v = array(2),
                          .out = array(3),
                          .lse = array(4),
                          .mask = array(5),
                          .dout = array(6),
                          .dq = array(7),
                          .dk = array(8),
                          .dv = array(9)},
                         {.scale = std::stod(parts.at(1)), .causal = parts.at(2) == "1"});
}

}  // namespace lockstep::test
