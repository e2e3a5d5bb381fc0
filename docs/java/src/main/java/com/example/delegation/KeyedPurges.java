package com.example.delegation;

import com.example.delegation.ServiceConnection.Tokens;
import com.example.delegation.api.ConfigurationApiApi;
import com.example.delegation.api.TaskExecutionApiApi;
import com.example.delegation.client.ApiClient;
import com.example.delegation.client.ApiException;
import com.example.delegation.model.ConfigResponseProperties;
import com.example.delegation.model.TaskPayload;
import com.example.delegation.model.TaskRecord;
import com.example.delegation.model.TaskSuccessResponse;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.time.Instant;
import java.util.UUID;

/** Purges whose requests are repeated with one idempotency key until the service says how they ended. */
final class KeyedPurges {
  private static final Duration LONGEST_PAUSE = Duration.ofSeconds(30);
  private static final ObjectMapper JSON = new ObjectMapper();

  private final TaskExecutionApiApi tasks;
  private final ConfigurationApiApi configuration;

  private final Tokens tokens;

  KeyedPurges(ApiClient client, Tokens tokens) {
    this.tokens = tokens;
    this.tasks = new TaskExecutionApiApi(client);
    this.configuration = new ConfigurationApiApi(client);
  }

  /** A purge did not end as SUCCESS; `code` says why, `delegationTaskId` names the task if there is one. */
  static final class PurgeFailed extends Exception {
    final String code;
    final String delegationTaskId;

    PurgeFailed(String code, String message, String delegationTaskId, Throwable cause) {
      super(code + ": " + message, cause);
      this.code = code;
      this.delegationTaskId = delegationTaskId;
    }
  }

  /**
   * Runs a purge and waits for its end, however long it takes.
   *
   * <p>The key must be stored with the caller's own intent to drop the table, so that a restarted caller sends the same.
   */
  TaskSuccessResponse purge(TaskPayload payload, String key) throws PurgeFailed, InterruptedException {
    Duration remembered = rememberedFor();
    Instant first = Instant.now();
    boolean renewed = false;
    for (int attempt = 1; ; attempt++) {
      Failure failure;
      try {
        return tasks.executeSynchronousTask(payload, key, null);
      } catch (ApiException error) {
        failure = Failure.of(error);
      }
      if (failure.status == 401 && !renewed) {
        // The issuer may have revoked the token or changed its keys before the token ended.
        tokens.forget();
        renewed = true;
        continue;
      }
      if (!failure.mayRepeat() || remembered.isZero()) {
        throw failure.asException();
      }
      Duration pause = failure.pause(attempt);
      // Beyond its lifetime a key starts a second purge: look at the task first, then decide.
      if (Duration.between(first, Instant.now()).plus(pause).compareTo(remembered) >= 0) {
        throw new PurgeFailed("IDEMPOTENCY_WINDOW_EXPIRED", failure.message, failure.taskId, failure.cause);
      }
      Thread.sleep(pause.toMillis());
    }
  }

  /** Returns the task as the service has it. */
  TaskRecord task(UUID id) throws ApiException {
    return tasks.getTask(id, null);
  }

  /** Returns for how long the service remembers keys; zero if it does not, and then nothing may be repeated. */
  private Duration rememberedFor() throws PurgeFailed {
    try {
      ConfigResponseProperties found = configuration.getConfig(null).getProperties();
      boolean supported = "true".equals(found.getIdempotencyKeySupported().getValue());
      String lifetime = found.getIdempotencyKeyLifetime();
      return supported && lifetime != null ? Duration.parse(lifetime) : Duration.ZERO;
    } catch (ApiException error) {
      throw Failure.of(error).asException();
    }
  }

  /** An answer that is no success, or none at all (`status` 0). */
  private record Failure(int status, String code, String message, String taskId, boolean ended, Boolean retryable,
      Long retryAfterSeconds, ApiException cause) {

    static Failure of(ApiException error) {
      JsonNode body = body(error);
      Long retryAfter = error.getResponseHeaders() == null ? null
          : error.getResponseHeaders().firstValue("Retry-After").map(Failure::seconds).orElse(null);
      return new Failure(
          error.getCode(),
          // API Gateway's own answers, and lost ones, have no error_code.
          body.path("error_code").asText(error.getCode() == 0 ? "ANSWER_LOST" : "HTTP_" + error.getCode()),
          body.path("message").asText(String.valueOf(error.getMessage())),
          body.path("delegation_task_id").asText(null),
          "FAILED_TERMINAL".equals(body.path("status").asText()),
          body.has("retryable") ? body.get("retryable").asBoolean() : null,
          retryAfter,
          error);
    }

    /** Whether the same request with the same key may be sent again. */
    boolean mayRepeat() {
      if (ended || Boolean.FALSE.equals(retryable)) {
        return false;
      }
      boolean running = status == 409 && "request_in_progress".equals(code);
      return running || status == 0 || status == 429 || status >= 500;
    }

    Duration pause(int attempt) {
      Duration doubled = Duration.ofSeconds(1L << Math.min(attempt - 1, 5));
      if (retryAfterSeconds != null) {
        return Duration.ofSeconds(Math.max(1, retryAfterSeconds));
      }
      return doubled.compareTo(LONGEST_PAUSE) > 0 ? LONGEST_PAUSE : doubled;
    }

    PurgeFailed asException() {
      return new PurgeFailed(code, message, taskId, cause);
    }

    private static JsonNode body(ApiException error) {
      try {
        return error.getResponseBody() == null ? JSON.nullNode() : JSON.readTree(error.getResponseBody());
      } catch (JsonProcessingException noJson) {
        return JSON.nullNode();
      }
    }

    private static Long seconds(String text) {
      try {
        return Long.valueOf(text.strip());
      } catch (NumberFormatException aDate) {
        return null;
      }
    }
  }
}
