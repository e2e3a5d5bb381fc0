import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.ExpireSnapshots;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.Schema;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.inmemory.InMemoryFileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;

/**
 * Answers, line by line, what Iceberg's ExpireSnapshots removes from table metadata.
 *
 * <p>A line in: {"document", "specs": {snapshot id: [spec ids of its manifests]}, "now": ms, "older_than_ms",
 * "retain_last": number or null, "snapshot_ids", "clean"}. A line out: {"ok": true, "snapshots", "refs", "schemas",
 * "specs"}, all that is removed, or {"ok": false, "type", "message"}. Iceberg's clock is set to "now".
 */
public class ExpiryOracle {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    String line;
    while ((line = in.readLine()) != null) {
      ObjectNode answer;
      try {
        answer = answer(MAPPER.readTree(line));
      } catch (RuntimeException e) {
        answer = MAPPER.createObjectNode();
        answer.put("ok", false);
        answer.put("type", e.getClass().getSimpleName());
        answer.put("message", e.getMessage());
      }
      out.println(MAPPER.writeValueAsString(answer));
      out.flush();
    }
  }

  private static ObjectNode answer(JsonNode question) throws Exception {
    TableMetadata base = TableMetadataParser.fromJson("s3://b/t/metadata/1.metadata.json", question.get("document"));
    InMemoryFileIO io = new InMemoryFileIO();
    for (Snapshot snapshot : base.snapshots()) {
      JsonNode specs = question.get("specs").get(String.valueOf(snapshot.snapshotId()));
      if (specs != null) {
        List<ManifestFile> manifests = new ArrayList<>();
        specs.forEach(spec -> manifests.add(manifestOf(spec.asInt())));
        fieldOf(snapshot, "allManifests").set(snapshot, manifests);
      }
    }
    // Iceberg opens the manifests that a snapshot of version 1 lists inline, without reading them.
    for (JsonNode snapshot : question.get("document").path("snapshots")) {
      snapshot.path("manifests").forEach(path -> io.addFile(path.asText(), new byte[0]));
    }
    ExpireSnapshots expire = new BaseTable(new Fixed(base, io), "t").expireSnapshots();
    setNow(expire, question.get("now").asLong());
    if (!question.get("older_than_ms").isNull()) {
      expire.expireOlderThan(question.get("older_than_ms").asLong());
    }
    if (!question.get("retain_last").isNull()) {
      expire.retainLast(question.get("retain_last").asInt());
    }
    question.get("snapshot_ids").forEach(id -> expire.expireSnapshotId(id.asLong()));
    expire.cleanExpiredMetadata(question.get("clean").asBoolean());
    return difference(base, updated(expire));
  }

  private static ObjectNode difference(TableMetadata base, TableMetadata updated) {
    ObjectNode answer = MAPPER.createObjectNode();
    answer.put("ok", true);
    Set<Long> snapshots = new TreeSet<>();
    base.snapshots().forEach(snapshot -> snapshots.add(snapshot.snapshotId()));
    updated.snapshots().forEach(snapshot -> snapshots.remove(snapshot.snapshotId()));
    Set<String> refs = new TreeSet<>(base.refs().keySet());
    refs.removeAll(updated.refs().keySet());
    Set<Integer> schemas = base.schemas().stream().map(Schema::schemaId).collect(Collectors.toCollection(TreeSet::new));
    updated.schemas().forEach(schema -> schemas.remove(schema.schemaId()));
    Set<Integer> specs = base.specs().stream().map(PartitionSpec::specId).collect(Collectors.toCollection(TreeSet::new));
    updated.specs().forEach(spec -> specs.remove(spec.specId()));
    answer.set("snapshots", MAPPER.valueToTree(snapshots));
    answer.set("refs", MAPPER.valueToTree(refs));
    answer.set("schemas", MAPPER.valueToTree(schemas));
    answer.set("specs", MAPPER.valueToTree(specs));
    return answer;
  }

  /** Moves the clock, which the constructor read, and the limit of age that it made of it. */
  private static void setNow(ExpireSnapshots expire, long now) throws Exception {
    Field clock = fieldOf(expire, "now");
    Field limit = fieldOf(expire, "defaultExpireOlderThan");
    limit.setLong(expire, limit.getLong(expire) + (now - clock.getLong(expire)));
    clock.setLong(expire, now);
  }

  private static TableMetadata updated(ExpireSnapshots expire) throws Exception {
    Method apply = expire.getClass().getDeclaredMethod("internalApply");
    apply.setAccessible(true);
    try {
      return (TableMetadata) apply.invoke(expire);
    } catch (InvocationTargetException e) {
      throw e.getCause() instanceof RuntimeException ? (RuntimeException) e.getCause() : e;
    }
  }

  private static Field fieldOf(Object object, String name) throws Exception {
    Field field = object.getClass().getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }

  private static ManifestFile manifestOf(int specId) {
    return (ManifestFile)
        Proxy.newProxyInstance(
            ManifestFile.class.getClassLoader(),
            new Class<?>[] {ManifestFile.class},
            (proxy, method, args) -> {
              if (method.getName().equals("partitionSpecId")) {
                return specId;
              }
              throw new UnsupportedOperationException(method.getName());
            });
  }

  /** A table of one state, to which nothing is committed. */
  private static class Fixed implements TableOperations {
    private final TableMetadata metadata;
    private final FileIO io;

    Fixed(TableMetadata metadata, FileIO io) {
      this.metadata = metadata;
      this.io = io;
    }

    @Override
    public TableMetadata current() {
      return metadata;
    }

    @Override
    public TableMetadata refresh() {
      return metadata;
    }

    @Override
    public void commit(TableMetadata base, TableMetadata updated) {
      throw new UnsupportedOperationException("commit");
    }

    @Override
    public FileIO io() {
      return io;
    }

    @Override
    public String metadataFileLocation(String fileName) {
      throw new UnsupportedOperationException("metadataFileLocation");
    }

    @Override
    public LocationProvider locationProvider() {
      throw new UnsupportedOperationException("locationProvider");
    }
  }
}
