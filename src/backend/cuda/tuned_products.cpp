#include "backend/cuda/tuned_products.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::cuda_kernels {
namespace {

/// The kernel, which cuBLASLt's guide lets programs keep ("cublasLtMatmulAlgo_t").
std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  lockstep::detail::TextStream text;
  text << std::hex << std::setfill('0');
  for (const auto word : algorithm.data) text << std::setw(16) << word;
  return text.str();
}

std::optional<cublasLtMatmulAlgo_t> algorithm_of(const std::string& text) {
  constexpr std::size_t digits = 16;
  cublasLtMatmulAlgo_t algorithm{};
  if (text.size() != digits * std::size(algorithm.data) ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos)
    return std::nullopt;
  for (std::size_t i = 0; i < std::size(algorithm.data); ++i)
    algorithm.data[i] = std::stoull(text.substr(i * digits, digits), nullptr, digits);
  return algorithm;
}

bool is_time(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
}

bool ends_within_a_line(int file) {
  const off_t size = ::lseek(file, 0, SEEK_END);
  char last = '\n';
  return size > 0 && ::pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

/// Adds a line by one write, behind half a line of a writer that was interrupted too. Others may
/// write at once: the end of a file moves atomically on a local file system, and on NFS by the lock
/// (open(2), flock(2)). One without locks is written without.
bool append(const std::string& path, std::string line) {
  const int file = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return false;
  while (::flock(file, LOCK_EX) != 0 && errno == EINTR) {
  }
  if (ends_within_a_line(file)) line.insert(0, 1, '\n');
  const bool is_whole = ::write(file, line.data(), line.size()) == std::ssize(line);
  return ::close(file) == 0 && is_whole;  // unlocks; NFS tells of failed writes here
}

}  // namespace

TunedProducts* TunedProducts::of_process() {
  static TunedProducts* const products = [] {
    const char* const file = std::getenv("LOCKSTEP_TUNED_PRODUCTS");
    return file && *file ? new TunedProducts(file) : nullptr;
  }();
  return products;
}

TunedProducts::TunedProducts(std::string file) : file_(std::move(file)) {
  std::error_code error;
  const bool is_new = !std::filesystem::exists(file_, error);
  can_write_ = (is_new || std::filesystem::is_regular_file(file_, error)) &&
               std::ofstream(file_, std::ios::app).is_open();
  if (!can_write_)
    LOCKSTEP_LOG(warning, "LOCKSTEP_TUNED_PRODUCTS: ", file_,
                 " is no file that can be written; this program measures its products, the next "
                 "one again");
  if (is_new || !std::filesystem::is_regular_file(file_, error)) return;
  std::ifstream lines(file_);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number)
    if (!line.empty() && !read(line))
      LOCKSTEP_LOG(warning, file_, ", line ", number,
                   ": not a tuned product (problem, 128 hexadecimal digits and two times, with "
                   "tabs between them); left out");
}

bool TunedProducts::read(const std::string& line) {
  lockstep::detail::TextReader fields(line);
  std::string problem, kernel, time, time_of_first, more;
  if (!std::getline(fields, problem, '\t') || !std::getline(fields, kernel, '\t') ||
      !std::getline(fields, time, '\t') || !std::getline(fields, time_of_first, '\t') ||
      std::getline(fields, more))
    return false;
  const auto algorithm = algorithm_of(kernel);
  if (!algorithm || !is_time(time) || !is_time(time_of_first)) return false;
  known_.insert_or_assign(problem, *algorithm);
  return true;
}

std::optional<cublasLtMatmulAlgo_t> TunedProducts::find(const std::string& problem) const {
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(problem);
  if (known == known_.end()) return std::nullopt;
  return known->second;
}

void TunedProducts::keep(const std::string& problem, const cublasLtMatmulAlgo_t& algorithm,
                         double microseconds, double microseconds_of_first) {
  lockstep::detail::TextStream line;
  line << problem << '\t' << text_of(algorithm) << '\t' << std::fixed << std::setprecision(1)
       << microseconds << '\t' << microseconds_of_first << '\n';
  const std::lock_guard lock(mutex_);
  known_.insert_or_assign(problem, algorithm);
  if (!can_write_) return;
  can_write_ = append(file_, line.str());
  if (!can_write_)
    LOCKSTEP_LOG(warning, "LOCKSTEP_TUNED_PRODUCTS: writing ", file_,
                 " failed; what is measured from here on is not kept");
}

}  // namespace lockstep::cuda_kernels
