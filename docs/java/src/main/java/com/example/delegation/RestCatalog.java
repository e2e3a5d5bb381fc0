package com.example.delegation;

import com.example.delegation.ServiceConnection.Tokens;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/** Polaris through its Iceberg REST API, so that the example runs outside of it; a host within Polaris needs none of this. */
final class RestCatalog implements TableCatalog {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final HttpClient http;
  private final String url;
  private final Tokens tokens;

  RestCatalog(HttpClient http, String url, Tokens tokens) {
    this.http = http;
    this.url = url;
    this.tokens = tokens;
  }

  /** An example's answer for an example's principal, which owns the tables: yours is your authorizer's decision. */
  @Override
  public boolean mayDropWithPurge(TableName name) {
    return true;
  }

  @Override
  public LoadedTable load(TableName name) {
    JsonNode table = sent("GET", name);
    JsonNode metadata = table.get("metadata");
    return new LoadedTable(
        table.get("metadata-location").asText(),
        metadata.get("table-uuid").asText(),
        metadata.get("location").asText(),
        metadata.get("format-version").asInt());
  }

  @Override
  public void dropWithoutPurge(TableName name) {
    sent("DELETE", name);
  }

  private JsonNode sent(String method, TableName name) {
    String path = "/v1/%s/namespaces/%s/tables/%s".formatted(
        part(name.catalog()), part(String.join("\u001f", name.namespace())), part(name.table()));
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(url + path))
            .timeout(Duration.ofSeconds(30))
            .header("Authorization", "Bearer " + tokens.current())
            .method(method, HttpRequest.BodyPublishers.noBody())
            .build();
    try {
      HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
      JsonNode body = answer.body().isBlank() ? JSON.nullNode() : JSON.readTree(answer.body());
      if (answer.statusCode() < 300) {
        return body;
      }
      JsonNode error = body.path("error");
      if (error.path("type").asText().equals("NoSuchTableException")) {
        throw new NoSuchTable();
      }
      // Polaris: 400 with this type once the metadata file is gone.
      if (answer.statusCode() == 400 && error.path("type").asText().equals("NotFoundException")) {
        throw new MetadataMissing(error.path("message").asText());
      }
      throw new IllegalStateException(
          "the catalog answered " + answer.statusCode() + " " + error.path("type").asText());
    } catch (IOException lost) {
      throw new UncheckedIOException("the catalog did not answer", lost);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted", interrupted);
    }
  }

  private static String part(String text) {
    return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
  }
}
