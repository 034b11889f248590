#include "nccl/signature.hpp"

namespace simgpu::nccl {
namespace {

const char* type_name(std::uint8_t type) {
  static constexpr const char* names[] = {"i8",  "u8",  "i32", "u32",  "i64",    "u64",
                                          "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
  return type < ncclNumTypes ? names[type] : "?";
}

const char* op_name(std::uint8_t op) {
  static constexpr const char* names[] = {"sum", "prod", "max", "min", "avg", "premulsum"};
  return op <= ncclNumOps ? names[op] : "?";
}

}  // namespace

const char* Signature::name() const {
  static constexpr const char* names[] = {"AllReduce", "Reduce",   "ReduceScatter", "AllGather",
                                          "Broadcast", "AlltoAll", "Gather",        "Scatter",
                                          "Send",      "Recv",     "management"};
  return names[static_cast<std::size_t>(function)];
}

const char* Signature::type_name() const { return nccl::type_name(type); }

std::string Signature::describe(std::uint64_t number) const {
  std::string text = std::string(name()) + " #" + std::to_string(number) + ' ' +
                     nccl::type_name(type) + " x " + std::to_string(count);
  if (reduces(function)) text += std::string(" ") + op_name(op);
  if (has_root(function)) text += " root " + std::to_string(root);
  if (function == Function::send) text += " to " + std::to_string(root);
  if (function == Function::receive) text += " from " + std::to_string(root);
  return text;
}

bool match(const Signature& a, const Signature& b) {
  return a.function == b.function && a.type == b.type && a.count == b.count &&
         (!reduces(a.function) || a.op == b.op) && (!has_root(a.function) || a.root == b.root);
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
  }
}

bool is_point_to_point(Function function) {
  return function == Function::send || function == Function::receive;
}

bool reduces(Function function) {
  return function == Function::all_reduce || function == Function::reduce ||
         function == Function::reduce_scatter;
}

bool has_root(Function function) {
  return function == Function::reduce || function == Function::broadcast ||
         function == Function::gather || function == Function::scatter;
}

}  // namespace simgpu::nccl
