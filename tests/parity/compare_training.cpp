// Compares a run of train_gpt with the reference run in a safetensors file:
//
//     compare_training EXPECTED LOG SAVED LOSS_TOLERANCE NORM_TOLERANCE WEIGHT_TOLERANCE
//
// Losses and gradient norms relatively, step by step; weights by the norm of the difference over
// the norm of the reference, tensor by tensor. Prints the largest deviations; exit code 1 past a
// limit.

#include <cmath>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/io/safetensors.hpp"

namespace {

using lockstep::Tensor;
using lockstep::io::SafetensorsFile;

struct Log {
  std::vector<double> losses, norms;
};

Log read_log(const std::string& path) {
  Log log;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const auto step = nlohmann::json::parse(line);
    log.losses.push_back(step.at("loss"));
    log.norms.push_back(step.at("grad_norm"));
  }
  return log;
}

double largest_relative(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < actual.size(); ++i)
    largest = std::max(largest, std::abs(actual[i] - expected[i]) / std::abs(expected[i]));
  return largest;
}

double relative_distance(const Tensor& actual, const Tensor& expected) {
  if (actual.shape() != expected.shape()) return INFINITY;
  const auto a = actual.to_vector<double>(), b = expected.to_vector<double>();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

bool report(const char* what, double deviation, double limit) {
  const bool fine = deviation <= limit;
  std::cout << what << ": largest deviation " << deviation << ", limit " << limit
            << (fine ? "" : "  FAILED") << '\n';
  return fine;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 7) throw std::runtime_error("needs six arguments");
  const auto expected = SafetensorsFile::open(argv[1]), saved = SafetensorsFile::open(argv[3]);
  const Log log = read_log(argv[2]);
  bool fine = report(
      "losses", largest_relative(log.losses, expected.tensor("train_losses").to_vector<double>()),
      std::stod(argv[4]));
  fine &= report("gradient norms",
                 largest_relative(log.norms, expected.tensor("grad_norms").to_vector<double>()),
                 std::stod(argv[5]));
  double weights = 0;
  int compared = 0;
  for (const std::string& name : expected.names()) {
    if (!name.starts_with("after.")) continue;
    ++compared;
    const std::string key = name.substr(6);
    weights = std::max(weights, saved.contains(key)
                                    ? relative_distance(saved.tensor(key), expected.tensor(name))
                                    : INFINITY);
  }
  fine &= compared > 0;
  fine &= report("weights", weights, std::stod(argv[6]));
  return fine ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "compare_training: " << error.what() << '\n';
  return 2;
}
