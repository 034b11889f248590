// Times all-reduce over sizes, in the columns of nccl-tests, and checks every value.
//
//   mpirun -np 2 build/bin/benchmark_allreduce --max-bytes 64M

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/memory.hpp"
#include "lockstep/comm/session.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "support/command_line.hpp"
#include "support/same_options.hpp"

namespace {

namespace ls = lockstep;
using ls::comm::ReduceOp;

struct Settings {
  std::uint64_t min_bytes = 8;
  std::uint64_t max_bytes = 256 << 20;
  int factor = 2;
  int iterations = 20;
  int warmup = 3;
  std::string dtype = "f32";
  std::string op = "sum";
  std::string device = "auto";
  std::string comm;
  bool unchecked = false;
  bool registered = false;
};

ls::DType dtype_named(const std::string& text) {
  for (const ls::DType dtype : {ls::DType::f64, ls::DType::f32, ls::DType::bf16, ls::DType::f16,
                                ls::DType::i64, ls::DType::i32, ls::DType::u8})
    if (ls::name(dtype) == text) return dtype;
  LOCKSTEP_THROW(InvalidArgument, "unknown dtype '", text, "'");
}

ReduceOp reduction_named(const std::string& text) {
  if (text == "sum") return ReduceOp::sum();
  if (text == "average") return ReduceOp::average();
  if (text == "min") return ReduceOp::min();
  return ReduceOp::max();
}

// Memory on the communicator's device, filled from and read back to the host.
class DeviceArray {
 public:
  /// @param group of whose memory it shall be, where it has some; or null.
  DeviceArray(ls::Device device, std::size_t bytes, ls::Communicator* group)
      : stream_(ls::current_stream(device)),
        memory_(group ? ls::comm::allocate_for(*group, bytes) : nullptr),
        block_(memory_ ? nullptr : ls::device_allocator(device).allocate(bytes, stream_)),
        host_(bytes) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { ls::device_allocator(stream_.device).deallocate(block_); }

  bool is_registered() const { return memory_.get() != nullptr; }
  void* data() const { return memory_ ? memory_->data() : block_->data; }
  std::byte* host() { return host_.data(); }
  void upload() { runtime().copy(data(), host(), host_.size(), stream_); }
  void download() {
    runtime().copy(host(), data(), host_.size(), stream_);
    ls::synchronize(stream_);
  }

 private:
  ls::DeviceRuntime& runtime() const { return ls::device_runtime(stream_.device.type); }

  ls::StreamRef stream_;
  ls::IntrusivePtr<ls::comm::Memory> memory_;
  ls::MemoryBlock* block_;
  std::vector<std::byte> host_;
};

// Small whole numbers, so that the result is exact in every dtype.
double value_of(int rank, std::int64_t index) {
  return static_cast<double>((index + 3 * rank) % 7);
}

double expected_of(ReduceOp reduction, int size, std::int64_t index) {
  double result = value_of(0, index);
  for (int rank = 1; rank < size; ++rank) {
    const double value = value_of(rank, index);
    if (reduction.kind == ls::comm::ReduceKind::min)
      result = std::min(result, value);
    else if (reduction.kind == ls::comm::ReduceKind::max)
      result = std::max(result, value);
    else
      result += value;
  }
  return reduction.kind == ls::comm::ReduceKind::average ? result / size : result;
}

template <class T>
T convert(double value) {
  return static_cast<T>(static_cast<ls::AccumulateType<T>>(value));
}

template <class T>
std::int64_t check_values(ls::Communicator& world, DeviceArray& array, std::int64_t count,
                          ReduceOp reduction) {
  T* values = reinterpret_cast<T*>(array.host());
  for (std::int64_t i = 0; i < count; ++i) values[i] = convert<T>(value_of(world.rank(), i));
  array.upload();
  world.all_reduce({array.data(), count, ls::dtype_of<T>}, reduction).wait();
  array.download();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    double expected = expected_of(reduction, world.size(), i);
    if (std::is_integral_v<T>) expected = std::trunc(expected);  // of an average
    const double off =
        static_cast<double>(static_cast<ls::AccumulateType<T>>(values[i])) - expected;
    if (!(std::abs(off) <= 0.01 * (1 + expected))) ++wrong;
  }
  return ls::comm::all_reduce_scalar(world, wrong);
}

double seconds_per_call(ls::Communicator& world, ls::comm::Buffer buffer, ReduceOp reduction,
                        int iterations) {
  world.barrier().synchronize();
  const auto start = std::chrono::steady_clock::now();
  ls::comm::Work last;
  for (int i = 0; i < iterations; ++i) {
    last = world.all_reduce(buffer, reduction);
    last.wait();
  }
  last.synchronize();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return ls::comm::all_reduce_scalar(world, elapsed.count() / iterations, ReduceOp::max());
}

bool run_size(ls::Session& session, const Settings& settings, std::uint64_t bytes) {
  const ls::DType dtype = dtype_named(settings.dtype);
  const ReduceOp reduction = reduction_named(settings.op);
  const auto count = static_cast<std::int64_t>(bytes / ls::size_of(dtype));
  if (count == 0) return true;
  bytes = static_cast<std::uint64_t>(count) * ls::size_of(dtype);  // what is sent
  ls::Communicator& world = *session.world();
  DeviceArray array(session.device(), bytes, settings.registered ? &world : nullptr);
  LOCKSTEP_CHECK(array.is_registered() == settings.registered, Unsupported, "backend ",
                 world.backend(), " has no memory of its own for buffers; leave --registered out");
  const std::int64_t wrong = ls::dispatch_numeric(dtype, "benchmark", [&](auto tag) {
    return check_values<typename decltype(tag)::type>(world, array, count, reduction);
  });
  // Zeros stay zeros however often they are summed.
  std::fill_n(array.host(), bytes, std::byte{0});
  array.upload();
  const ls::comm::Buffer buffer(array.data(), count, dtype);
  const bool is_large = bytes > (16 << 20);
  const int iterations = is_large ? std::max(1, settings.iterations / 4) : settings.iterations;
  seconds_per_call(world, buffer, reduction, std::max(1, is_large ? 1 : settings.warmup));
  const double seconds = seconds_per_call(world, buffer, reduction, iterations);
  const double algorithm = static_cast<double>(bytes) / seconds * 1e-9;
  const double bus = algorithm * 2 * (world.size() - 1) / world.size();
  if (session.is_main()) {
    std::printf("%12llu %12lld %6s %8s %11.2f %8.3f %8.3f %7lld\n",
                static_cast<unsigned long long>(bytes), static_cast<long long>(count),
                settings.dtype.c_str(), settings.op.c_str(), seconds * 1e6, algorithm, bus,
                static_cast<long long>(wrong));
    std::fflush(stdout);
  }
  return wrong == 0;
}

int benchmark(ls::Session& session, const Settings& settings) {
  if (session.is_main())
    std::printf(
        "# %d ranks, backend %s, device %s\n#%11s %12s %6s %8s %11s %8s %8s %7s\n"
        "#%11s %12s %6s %8s %11s %8s %8s\n",
        session.size(), std::string(session.world()->backend()).c_str(),
        session.device().is_cpu() ? "cpu" : "cuda", "size", "count", "type", "redop", "time",
        "algbw", "busbw", "#wrong", "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)");
  bool is_right = true;
  for (std::uint64_t bytes = settings.min_bytes; bytes <= settings.max_bytes;
       bytes *= static_cast<std::uint64_t>(settings.factor))
    is_right = run_size(session, settings, bytes) && is_right;
  return is_right ? 0 : 1;
}

void describe_options(CLI::App& app, Settings& settings) {
  const CLI::AsSizeValue bytes(false);
  app.add_option("--min-bytes", settings.min_bytes, "smallest size")->transform(bytes);
  app.add_option("--max-bytes", settings.max_bytes, "largest size")->transform(bytes);
  app.add_option("--factor", settings.factor, "ratio of sizes")
      ->check(examples::whole_number(2, 1024));
  app.add_option("--iterations", settings.iterations, "timed calls a size, a quarter above 16 MiB")
      ->check(examples::whole_number(1, 1'000'000));
  app.add_option("--warmup", settings.warmup, "untimed calls")
      ->check(examples::whole_number(0, 1'000'000));
  app.add_option("--dtype", settings.dtype, "element type")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16", "i64", "i32", "u8"}));
  app.add_option("--op", settings.op, "reduction")
      ->check(CLI::IsMember({"sum", "average", "min", "max"}));
  app.add_option("--device", settings.device, "auto, cpu, cuda or cuda:N");
  examples::add_comm_option(app, settings.comm);
  app.add_flag("--unchecked", settings.unchecked, "do not compare signatures between the ranks");
  app.add_flag("--registered", settings.registered,
               "in memory of the group, as gradient buckets are");
  app.final_callback([&settings] {
    if (settings.min_bytes == 0 || settings.min_bytes > settings.max_bytes ||
        settings.max_bytes > (std::uint64_t{1} << 40))
      throw CLI::ValidationError("--min-bytes and --max-bytes must be 1 to 1T, and in order");
  });
}

}  // namespace

int main(int argc, char** argv) try {
  Settings settings;
  CLI::App app("Times all-reduce over sizes and checks its values", "benchmark_allreduce");
  describe_options(app, settings);
  examples::parse(app, argc, argv);
  return ls::Session::run(
      argc, argv,
      [&](ls::Session& session) {
        examples::check_same_options(*session.world(), app, {.own = {"--device"}});
        return benchmark(session, settings);
      },
      {.device = settings.device,
       .communicator = {.check_signatures = !settings.unchecked, .backend = settings.comm}});
} catch (const examples::Exit& exit) {
  return exit.code;
}
