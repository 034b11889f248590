#pragma once

#include <stdint.h>

/// @file
/// Stands in for the header of NVTX: ranges of a thread name the ops of a profile
/// (LOCKSTEP_SIM_PROFILE); marks, colours and categories are dropped.

// NOLINTBEGIN: the names and spellings are those of the original.
#define NVTX_VERSION 3

typedef uint64_t nvtxRangeId_t;

typedef enum nvtxColorType_t { NVTX_COLOR_UNKNOWN = 0, NVTX_COLOR_ARGB = 1 } nvtxColorType_t;
typedef enum nvtxMessageType_t {
  NVTX_MESSAGE_UNKNOWN = 0,
  NVTX_MESSAGE_TYPE_ASCII = 1,
  NVTX_MESSAGE_TYPE_UNICODE = 2
} nvtxMessageType_t;
typedef union nvtxMessageValue_t {
  const char* ascii;
  const wchar_t* unicode;
} nvtxMessageValue_t;
typedef struct nvtxEventAttributes_v2 {
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t colorType;
  uint32_t color;
  int32_t payloadType;
  int32_t reserved0;
  union {
    uint64_t ullValue;
    int64_t llValue;
    double dValue;
  } payload;
  int32_t messageType;
  nvtxMessageValue_t message;
} nvtxEventAttributes_t;
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))

extern "C" {
int nvtxRangePushA(const char* message);
int nvtxRangePushEx(const nvtxEventAttributes_t* attributes);
int nvtxRangePop(void);
}

#define nvtxRangePush nvtxRangePushA
inline void nvtxMarkA(const char*) {}
#define nvtxMark nvtxMarkA
inline nvtxRangeId_t nvtxRangeStartA(const char*) { return 0; }
#define nvtxRangeStart nvtxRangeStartA
inline void nvtxRangeEnd(nvtxRangeId_t) {}
inline void nvtxNameOsThreadA(uint32_t, const char*) {}
// NOLINTEND
